"""Limits of this process, which the ranks inherit, and how many threads the ranks start."""

from busbw.check.machine import Machine
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
