"""`busbw check --watch-for` and `--since`: the earlier reading, with which checks see how counters
rise.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from busbw.check.base import Check
from busbw.check.machine import Machine
from busbw.check.rates import HOSTNAME, interval_s
from busbw.check.registry import BootedSince, compare, load_reading, take_reading
from busbw.core.errors import UsageError
from busbw.host.limited import within
from busbw.host.snapshot import archives_in, is_tree, parse_archive, recorded
from busbw.host.source import LiveMachine, Source

NOT_THERE, MISSING = "no snapshot of this host", "no such file or directory"
BY_TOTALS = "so errors are judged by their totals"
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
    if since and (hosts or len(files) > 1) and not _is_folder(since):
        one = "it is one snapshot, and there are several machines"
        raise UsageError(
            f"--since {since}: {one if Path(since).exists() else MISSING}",
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


def _is_folder(since: str) -> bool:
    """Whether it is a folder of snapshots, maybe an empty one."""
    return Path(since).is_dir() and not is_tree(Path(since))


def read_earlier(since: str, source: Source) -> Machine | str:
    """The machine of a snapshot, or of the one in a folder; or why counters cannot be compared
    with it: there is none, or the machine was booted since.

    UsageError for a file that is no snapshot, and for one of another machine or a later time.
    """
    if not Path(since).exists():
        return f"{since}: {MISSING}"
    if _is_folder(since):
        found = oldest(earlier_by_host(since), source)
        return f"{since}: {found}" if found == NOT_THERE else found
    earlier = load_reading(since)
    try:
        compare(since, earlier, Machine(source))
    except BootedSince as error:
        return _reason(error)
    return earlier


def _reason(error: UsageError) -> str:
    return error.message.removeprefix("--since ")


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
    reason = NOT_THERE
    longest_s, found = 0.0, None
    for file in snapshots.get(host, ()):
        earlier = load_reading(file)
        try:
            compare(file, earlier, now)
        except UsageError as error:
            reason = _reason(error)
            continue
        seconds = interval_s(Machine(now, earlier)) or 0.0
        if seconds > longest_s:
            longest_s, found = seconds, earlier
    return found or reason
