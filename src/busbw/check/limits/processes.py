"""Limits of this process, which ranks inherit, and how many threads they start."""

from busbw.check.base import not_offered, unread
from busbw.check.machine import Machine
from busbw.check.types import Found
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
    """Threads of one rank per GPU: OpenMP starts one per CPU, NCCL and data loaders more."""
    return max(LEAST_THREADS, 2 * len(machine.host.gpus) * machine.host.cpus)


def unknown_group(machine: Machine, controller: str) -> Found:
    """Why the cgroup of this process is unknown."""
    reading = machine.read(OWN)
    if reading.text is None:
        return unread("", reading, "the cgroup of this process")
    return not_offered("", f"{MOUNT} does not have the {controller} cgroup that {OWN} names for this process")
