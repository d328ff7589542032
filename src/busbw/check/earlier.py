"""`busbw check --watch-for` and `--since`: the earlier reading, with which checks see how counters
rise.
"""

import time
from collections.abc import Sequence

from busbw.check.base import Check
from busbw.check.machine import Machine
from busbw.check.registry import compare, load_reading, take_reading
from busbw.core.errors import UsageError
from busbw.host.limited import within
from busbw.host.snapshot import parse_archive
from busbw.host.source import LiveMachine, Source


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
    if since and (hosts or len(files) > 1):
        raise UsageError(
            "--since is for one machine", "busbw check trend compares snapshots of several"
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
    """The machine of a snapshot; UsageError if it is not an earlier one of the same machine."""
    earlier = load_reading(since)
    compare(since, earlier, Machine(source))
    return earlier
