"""`busbw check --watch-for` and `--since`: the earlier reading, with which checks see how counters
rise.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from busbw.check.base import Check
from busbw.check.machine import Machine
from busbw.check.rates import HOSTNAME, interval_s
from busbw.check.registry import compare, load_reading, take_reading
from busbw.core.errors import UsageError
from busbw.host.limited import within
from busbw.host.snapshot import MADE_BY, archives_in, parse_archive, recorded
from busbw.host.source import LiveMachine, Source

ByHost = Mapping[str, Sequence[str]]  # files of earlier snapshots


def refuse_watch_options(
    watch_s: float | None, since: str, files: Sequence[str], *, hosts: int
) -> None:
    """UsageError for options that exclude each other."""
    if watch_s and since:
        raise UsageError(
            "--watch-for and --since exclude each other",
            "--since with an older snapshot gives the longer time",
        )
    if watch_s and files:
        raise UsageError(
            "--watch-for reads this machine or --hosts, not a snapshot",
            "give the older snapshot to --since",
        )
    if since and (hosts or len(files) > 1) and not archives_in(since):
        raise UsageError(
            f"--since {since}: it is one snapshot, and there are several machines",
            "name a folder that has one of each: busbw check --hosts h1,h2 --save DIR",
        )


def read_first(checks: Sequence[Check], watch_s: float | None, limit_s: float) -> Machine | None:
    """This machine, read within `limit_s`, after which `watch_s` pass; None without `watch_s`."""
    if not watch_s:
        return None
    start_s = time.monotonic()
    archive = within(lambda source: take_reading(source, checks), LiveMachine(), limit_s=limit_s)
    time.sleep(max(0.0, watch_s - (time.monotonic() - start_s)))
    return Machine(parse_archive(archive, "the first reading"))


def read_earlier(since: str, source: Source) -> Machine:
    """The machine of a snapshot, or of the one in a folder; UsageError if it is not an earlier one
    of the same machine.
    """
    if archives_in(since):
        found = oldest(earlier_by_host(since), source)
        if isinstance(found, str):
            raise UsageError(f"--since {since}: {found}", MADE_BY)
        return found
    earlier = load_reading(since)
    compare(since, earlier, Machine(source))
    return earlier


def earlier_by_host(folder: str) -> ByHost:
    """The snapshots in a folder by the name of their host, without those that cannot be read."""
    by_host: dict[str, list[str]] = {}
    for file in archives_in(folder):
        try:
            host = recorded(Path(file)).read(HOSTNAME).text or ""
        except UsageError:
            continue
        by_host.setdefault(host, []).append(file)
    return by_host


def oldest(snapshots: ByHost, source: Source) -> Machine | str:
    """The oldest reading of the machine since its last boot, or why there is none."""
    now = Machine(source)
    host = now.text(HOSTNAME) or ""
    reason = "no snapshot of this host"
    longest_s, found = 0.0, None
    for file in snapshots.get(host, ()):
        earlier = load_reading(file)
        try:
            compare(file, earlier, now)
        except UsageError as error:
            reason = error.message.removeprefix("--since ")
            continue
        seconds = interval_s(Machine(now, earlier)) or 0.0
        if seconds > longest_s:
            longest_s, found = seconds, earlier
    return found or reason
