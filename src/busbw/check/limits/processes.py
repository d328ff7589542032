"""Limits of this process, which the ranks inherit, and how many threads the ranks start."""

from busbw.check.base import unknown, unread
from busbw.check.machine import Machine
from busbw.core.checking import Found
from busbw.host.cgroup import MOUNT, OWN
from busbw.host.settings import soft_limit
from busbw.host.source import Reading

PATH = "/proc/self/limits"
LEAST_THREADS = 4096


def limit(machine: Machine, name: str) -> tuple[Reading, str | None]:
    """The soft limit of this name, a number or `unlimited`; None if it cannot be read."""
    reading = machine.read(PATH)
    return reading, soft_limit(reading.text or "", name)


def threads_needed(machine: Machine) -> int:
    """Room for the threads of a rank for each GPU: OpenMP starts one for each CPU, NCCL and data loaders more."""
    return max(LEAST_THREADS, 2 * len(machine.host.gpus) * machine.host.cpus)


def unknown_group(machine: Machine, controller: str) -> Found:
    """Why the control group of this process is not known."""
    reading = machine.read(OWN)
    if reading.text is None:
        return unread("", reading, "the control group of this process")
    return unknown("", f"{MOUNT} does not show the group of this process that {OWN} names for {controller}")
