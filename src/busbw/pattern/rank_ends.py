"""When the ranks of a capture ended and how, as the `busbw capture` that started them has noted it
(end_watch.py): in a file of the folder for each, which is there when nobody watched.
"""

import math
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from busbw.core.pattern_weights import ranks_text
from busbw.core.sizes import counted
from busbw.pattern.unfinished import RankProcess, rank_processes
from busbw.ui.number_formats import time_text

VERSION = 1
FILES = ".ends_*.json"
FIRST_S = 0.01  # a signal to all ranks ends them within less
MOST_HOSTS = 4  # of which it is said
Identity = tuple[str, str, int, int]  # host, namespace of its processes, pid and start


def file_name(launch: str) -> str:
    """The file of the `busbw capture` that has this name."""
    return FILES.replace("*", launch)


def is_file(name: str) -> bool:
    return fnmatchcase(name, FILES)


class RankEnd(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The end of the process of a rank."""

    rank: int
    pid: int
    started: int  # clock ticks since boot
    begin_s: float  # of the host's CLOCK_MONOTONIC, as is the end
    end_s: float
    unix_s: float
    signal: int = 0  # that killed it; 0 also if that was not seen
    code: int = 0  # with which it exited; the same
    order: int = 0  # the signal by which `busbw capture` had been told to end the job


class HostEnds(msgspec.Struct, kw_only=True):
    """A file of ends, in their order; `pid` and `started` are of the `busbw capture`."""

    version: int
    host: str
    pid_namespace: str
    pid: int
    started: int
    ends: list[RankEnd]

    def last(self) -> dict[Identity, RankEnd]:
        """By process, the ends since ranks were started last."""
        where = self.host, self.pid_namespace
        last_s = max((end.begin_s for end in self.ends), default=0.0)
        ends = [end for end in self.ends if end.end_s >= last_s]
        return {(*where, end.pid, end.started): end for end in ends}


def read(path: Path) -> HostEnds | None:
    """None for a file that cannot be read, or is of another version."""
    try:
        of_host = msgspec.json.decode(path.read_bytes(), type=HostEnds)
    except (OSError, ValueError):
        return None
    return of_host if of_host.version == VERSION else None


def all_ends(folder: Path) -> dict[Identity, RankEnd]:
    """The ends in all files of a folder."""
    found: dict[Identity, RankEnd] = {}
    for path in folder.glob(FILES):
        of_host = read(path)
        found |= of_host.last() if of_host else {}
    return found


def first_of(ends_s: Mapping[int, float | None]) -> tuple[int | None, float]:
    """Which rank ended before all others, and how long before another one: None, if the end of one
    was not seen or they ended together.
    """
    known = sorted((end_s, rank) for rank, end_s in ends_s.items() if end_s is not None)
    if not known or len(known) < len(ends_s):
        return None, 0.0
    gap_s = known[1][0] - known[0][0] if len(known) > 1 else math.inf
    return (known[0][1], gap_s) if gap_s >= FIRST_S else (None, gap_s)


def signal_name(number: int) -> str:
    """`SIGKILL`; of one without a name `signal 40`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how(number: int, code: int, *, ended: bool) -> str:
    """How a process ended, as far as that is known; '' if it ended well."""
    if number == signal.SIGABRT:
        return "aborted itself (SIGABRT)"
    if number:
        return f"was killed by {signal_name(number)}"
    if code:
        return f"exited with code {code}"
    if ended:
        return ""
    return "did not come to its end: a signal or os._exit, which its launcher's output says"


def notes(folder: Path) -> list[str]:
    """Of each host which rank went first, if it did not end well; none for ranks that were told to
    end. Where a rank has left nothing, none is said to be the first.
    """
    ends, of_hosts = all_ends(folder), defaultdict[str, dict[int, _Ended]](dict)
    ranks = list(rank_processes(folder))
    if lost := missing(ranks):
        return [
            f"{ranks_text(lost)} left no record: which rank went first is unknown here, and may"
            " stand in the launcher's output"
        ]
    for rank in ranks:
        end = ends.get((rank.host, rank.pid_namespace, rank.pid, rank.started))
        of_hosts[rank.host][rank.rank] = rank, end
    said = sorted(found for ranks in of_hosts.values() for found in _first(ranks))
    texts = [text for _, text in said[:MOST_HOSTS]]
    if len(said) > MOST_HOSTS:
        texts.append(f"ranks of {counted(len(said) - MOST_HOSTS, 'more host')} did not end well")
    return texts


def missing(ranks: Sequence[RankProcess]) -> list[int]:
    """The ranks of the job that left nothing, as one that ended soon after its start."""
    there = {rank.rank for rank in ranks}
    return sorted(set(range(max((rank.world for rank in ranks), default=0))) - there)


_Ended = tuple[RankProcess, RankEnd | None]


def _first(ranks: Mapping[int, _Ended]) -> Iterator[tuple[float, str]]:
    """When the first of a host's ranks ended, in Unix seconds, and what is said of it."""
    first, gap_s = first_of(
        {number: end.end_s if end else None for number, (_, end) in ranks.items()}
    )
    of, end = (None, None) if first is None else ranks[first]
    if of is None or end is None or end.order:
        return
    ending = how(end.signal, end.code, ended=of.ended)
    if not ending:
        return
    before = f", {time_text(gap_s)} before another one" if gap_s < math.inf else ""
    at = datetime.fromtimestamp(end.unix_s, UTC)
    yield (
        end.unix_s,
        f"rank {first} on {of.host} went first, at {at:%H:%M:%S} UTC{before}, and {ending}",
    )
