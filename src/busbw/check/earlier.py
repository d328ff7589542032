"""The earlier reading of a machine, made now or from a snapshot, for how its counters rise."""

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
    host, this_host = earlier.text(HOSTNAME) or "", now.text(HOSTNAME) or ""
    if host != this_host:
        raise UsageError(
            f"--since {file}: it is of {host or 'an unnamed host'}, not of {this_host}",
            "busbw snapshot -o FILE, on this host",
        )
    if (earlier.text(BOOT) or "") != (now.text(BOOT) or ""):
        raise UsageError(
            f"--since {file}: {host} was booted since, which set its counters to 0",
            "busbw snapshot -o FILE, and again later",
        )
    seconds = interval_s(Machine(now, earlier))
    if seconds is None:
        raise UsageError(
            f"--since {file}: it is not earlier than this reading",
            "give the older snapshot to --since",
        )
