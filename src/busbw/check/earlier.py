"""The earlier reading of a machine, with which checks see how its counters rise: made now, or from a snapshot."""

from collections.abc import Iterable
from pathlib import Path

from busbw.check.base import Check
from busbw.check.examine import HOSTNAME, examine
from busbw.check.machine import Machine
from busbw.check.rates import BOOT, UPTIME, interval_s
from busbw.core.errors import UsageError
from busbw.host.snapshot import Recording, recorded
from busbw.host.source import Source

SAME = (HOSTNAME, BOOT, UPTIME)


def read_now(source: Source, checks: Iterable[Check]) -> str:
    """The machine as these checks read it now, as an archive."""
    recording = Recording(source)
    for path in SAME:
        recording.read(path)
    examine(recording, checks)
    return recording.archive()


def read_then(file: str) -> Machine:
    """The machine of a snapshot."""
    return Machine(recorded(Path(file)))


def compare(file: str, earlier: Machine, now: Machine) -> None:
    """UsageError unless `file` holds an earlier reading of the same machine since its last boot."""
    hosts, boots = ([one.text(path) or "" for one in (earlier, now)] for path in (HOSTNAME, BOOT))
    if hosts[0] != hosts[1]:
        raise UsageError(
            f"--since {file}: it is of {hosts[0] or 'an unnamed host'}, not of {hosts[1]}", "busbw snapshot -o FILE, on this host"
        )
    if boots[0] != boots[1]:
        raise UsageError(
            f"--since {file}: {hosts[0]} was booted since, which set its counters to 0", "busbw snapshot -o FILE, and again later"
        )
    seconds = interval_s(Machine(now, earlier))
    if seconds is None:
        raise UsageError(f"--since {file}: it is not earlier than this reading", "give the older snapshot to --since")
