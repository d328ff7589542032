"""What the log of a training says of a collective that timed out: lines of PyTorch's NCCL watchdog.

Each rank writes which call it gave up, and since 2.3 up to which number it had called and completed
the collectives of that process group (ProcessGroupNCCL.cpp). Ranks that write nothing are those
that ended before, or that wait outside of NCCL.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from busbw.core.finding import Verdict
from busbw.core.pattern_weights import ranks_text
from busbw.core.sizes import counted, span
from busbw.job.types import JobReport

TOLD = "Received a dump signal"
# A log with one of them is read. The last two stand before the message, which may be broken.
MARKS = ("Watchdog caught", TOLD, "ProcessGroupNCCL", "ProcessGroupXCCL")
WORDS = (*MARKS, "detected by watchdog", "last enqueued")
# Terminals, mail clients and web pages break lines anywhere, so that patterns are of text without
# white space.
LINES = 6
_QUOTED = "> |\t"
_SAME_MESSAGE = r"(?:(?!\[PG|\[rank).)"  # a character before the next message begins
_RANK = r"(?:\[rank(\d{1,9})\]:)?(?:\[[EIW][^\]]{0,80}\])?"
_CAUGHT = re.compile(
    rf"{_RANK}(?:\[PG[^\]]{{0,80}}\])?\[Rank(\d{{1,9}})\]Watchdogcaughtcollectiveoperationtimeout:"
    r"Work[A-Z]{1,2}CCL\(SeqNum=(\d{1,18}),OpType=(\w{1,40})"
    r"(?:,NumelIn=(\d{1,20}),NumelOut=\d{1,20})?"
    r",Timeout\(ms\)=(\d{1,12})\)"
)
_STATUS = re.compile(
    rf"{_RANK}\[PG(?:ID)?([^\]]{{1,80}}?)Rank(\d{{1,9}})\]{_SAME_MESSAGE}{{0,120}}?"
    r"at(?:work|worksequenceid|NCCLwork):(\d{1,18}),?(?:PGstatus:)?"
    r"lastenqueued(?:NCCL)?work:(-?\d{1,18}),lastcompleted(?:NCCL)?work:(-?\d{1,18})"
)
_TOLD = re.compile(
    rf"{_RANK}\[PG(?:ID)?([^\]]{{1,80}}?)Rank(\d{{1,9}})\]Receivedadumpsignaldueto"
    r"acollectivetimeoutfrom(?:thislocalrank|rank(\d{1,9})).{0,80}?"
    r"LastenqueuedNCCLwork:(-?\d{1,18}),lastcompletedNCCLwork:(-?\d{1,18})"
)
_RANKS = r"\[(\d{1,9}(?:, \d{1,9}){0,9999})\]"
_DESYNC = re.compile(  # TraceUtils.h
    rf"{_RANKS} (finished collective #\d+, but didn't join collective #\d+"
    rf"|joined but didn't finish collective #\d+)|our best knowledge, ranks {_RANKS} are the"
)
NO_SIZE = 1 << 63  # of calls in a group PyTorch prints -1 as a number without a sign
FIX = (
    "look at a rank that is missing here first: it died, or never made the call; otherwise at the"
    " network: busbw check, busbw link; the next time let PyTorch dump its Flight Recorder, which"
    " busbw check job reads"
)
# Of these each rank has as many elements.
EVEN = ("ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
FIX_TOLD = "its log names the call and the process group: busbw show LOG"
FIX_MISMATCH = "the ranks' programs differ: look for a branch that depends on the rank or its data"


class TimedOutCall(NamedTuple):
    """A call that a rank gave up.

    `own` is the rank's number in the process group. `elements` is None where the log does not
    state them.
    """

    rank: int
    own: int
    number: int
    function: str
    elements: int | None
    limit_s: float

    @property
    def call(self) -> str:
        """`ALLREDUCE of 1024 elements`."""
        if self.elements is None:
            return self.function
        return f"{self.function} of {counted(self.elements, 'element')}"

    @property
    def alike(self) -> str:
        """What is the same on all ranks that make the same call."""
        return self.call if self.function in EVEN else self.function


class Status(NamedTuple):
    """Up to which number a rank had called and completed collectives of a group, and which one it
    gave up.
    """

    rank: int
    own: int
    group: str
    number: int
    called: int
    completed: int


def report(text: str) -> JobReport | None:
    """What the log says; None if no rank of it gave up a call, or was told that one did."""
    waits, statuses = _read(text)
    if not waits:
        return _told(text)
    by_group: dict[str, dict[int, TimedOutCall]] = defaultdict(dict)
    for wait in sorted(waits, reverse=True, key=lambda wait: wait.number):  # a rank's first stays
        by_group[_group_of(wait, statuses)][wait.rank] = wait
    of_groups = [
        _Group(
            name,
            sorted(found.values(), key=lambda wait: wait.rank),
            {row.rank: row for row in statuses if row.group == name},
        )
        for name, found in sorted(by_group.items())
    ]
    of_groups.sort(key=lambda group: -len(group.waits))  # others follow from the largest
    message, fix = of_groups[0].conclusion()
    evidence = [line for group in of_groups for line in group.evidence()]
    if out_of_step := _out_of_step(text):
        message = f"PyTorch reports ranks out of step: {'; '.join(out_of_step)}"
    return JobReport(
        at="", seconds=0.0, verdict=Verdict.FAIL, message=message, evidence=evidence, fix=fix
    )


def _out_of_step(text: str) -> list[str]:
    """What the report of TORCH_NCCL_DESYNC_DEBUG=1 says: the ranks that caused the timeout."""
    found = []
    for match in _DESYNC.finditer(text):
        ranks = ranks_text(int(rank) for rank in (match[1] or match[3]).split(","))
        found.append(f"{ranks} {match[2] or 'never joined any collective'}")
    return list(dict.fromkeys(found))


def _told(text: str) -> JobReport | None:
    """Which rank gave up a call, by others that it told; None if there are none."""
    found = (match for compact in _compact(text) for match in _TOLD.finditer(compact))
    told = sorted({match.groups() for match in found}, key=lambda words: int(words[0] or words[2]))
    if not told:
        return None
    first = sorted({int(by or rank or own) for rank, _, own, by, _, _ in told})
    texts = []
    for rank, group, own, _, called, completed in told:
        name = group.rpartition("GUID")[2]
        status = Status(int(rank or own), int(own), name, 0, int(called), int(completed))
        texts.append(
            (status.rank, f"called up to {called} of group {name}, completed {_completed(status)}")
        )
    message = f"{ranks_text(first)} gave up a call first; the lines of that are not in this log"
    return JobReport(
        at="",
        seconds=0.0,
        verdict=Verdict.FAIL,
        message=message,
        evidence=_alike(texts),
        fix=FIX_TOLD,
    )


def _group_of(wait: TimedOutCall, statuses: set[Status]) -> str:
    """The group that the rank names, or else the only one in which others gave up a call of this
    number; '' if there is none.
    """
    same = [row for row in statuses if row.number == wait.number]
    own = {row.group for row in same if row.rank == wait.rank}
    names = own or {row.group for row in same}
    return names.pop() if len(names) == 1 else ""


def _read(text: str) -> tuple[set[TimedOutCall], set[Status]]:
    """The calls that ranks gave up, and how far they had come."""
    waits, statuses = set(), set()
    for compact in _compact(text):
        for match in _CAUGHT.finditer(compact):
            rank, own, number, function, elements, limit_ms = match.groups()
            waits.add(
                TimedOutCall(
                    int(rank or own),
                    int(own),
                    int(number),
                    function,
                    int(elements) if elements and int(elements) < NO_SIZE else None,
                    int(limit_ms) / 1e3,
                )
            )
        for match in _STATUS.finditer(compact):
            rank, group, own, number, called, completed = match.groups()
            name = group.rpartition("GUID")[2]
            numbers = int(number), int(called), int(completed)
            statuses.add(Status(int(rank or own), int(own), name, *numbers))
    return waits, statuses


def _compact(text: str) -> Iterator[str]:
    """Lines with one of WORDS, the one before them, which may have the rank, and what may be the
    rest of them: each piece of the log without white space.
    """
    lines = text.splitlines()
    piece: list[str] = []
    end = 0  # of the lines that were taken
    for number, line in enumerate(lines):
        if not any(word in line for word in WORDS):
            continue
        if number - 1 > end and piece:
            yield "".join(piece)
            piece = []
        begin, end = max(end, number - 1), number + LINES
        piece += ["".join(each.lstrip(_QUOTED).split()) for each in lines[begin:end]]
    yield "".join(piece)


@dataclass(frozen=True, slots=True)
class _Group:
    """The first call that each rank of a process group gave up, and the statuses by rank. The name
    is empty where the log names no groups: then calls may be of several.
    """

    name: str
    waits: Sequence[TimedOutCall]
    statuses: Mapping[int, Status]

    def conclusion(self) -> tuple[str, str]:
        """Whom the ranks waited for, and what to do."""
        last = max(wait.number for wait in self.waits)
        same = [wait for wait in self.waits if wait.number == last]
        if len({wait.alike for wait in same}) > 1:
            calls = "; ".join(_alike((wait.rank, wait.call) for wait in same))
            return f"ranks made different calls as {self._place(last)}: {calls}", FIX_MISMATCH
        if not self.name and len(same) < len(self.waits):
            return f"ranks waited in different calls: {'; '.join(self.evidence())}", FIX
        late = {rank: row.called for rank, row in self.statuses.items() if row.called < last}
        late |= {wait.rank: wait.number for wait in self.waits if wait.number < last}
        waited = (
            f"{same[0].call}, {self._place(last)}, in which"
            f" {ranks_text(wait.rank for wait in same)} waited for {span(same[0].limit_s)}"
        )
        if late:
            numbers = ", ".join(map(str, sorted(set(late.values()))))
            own_wait = all(rank in {wait.rank for wait in self.waits} for rank in late)
            who = "it" if len(late) == 1 else "they"
            last_text = f"number {numbers}" + (f", in which {who} waited too" if own_wait else "")
            return f"{ranks_text(late)} had not called {waited} (last: {last_text})", FIX
        own = {wait.own for wait in self.waits} | {row.own for row in self.statuses.values()}
        absent = sorted(set(range(max(own))) - own)
        if absent:
            of_group = " of the group" if self.name else ""
            return f"{ranks_text(absent)}{of_group} wrote nothing to this log of {waited}", FIX
        return f"no rank of this log is late in {waited}", FIX

    def evidence(self) -> list[str]:
        """The calls that ranks gave up, and how far they had come."""
        texts = []
        for wait in self.waits:
            text = f"{wait.call}, {self._place(wait.number)}"
            status = self.statuses.get(wait.rank)
            if status:
                text += f"; called up to {status.called}, completed {_completed(status)}"
            texts.append((wait.rank, text))
        return _alike(texts)

    def _place(self, number: int) -> str:
        return f"number {number}" + (f" of group {self.name}" if self.name else "")


def _completed(status: Status) -> str:
    """Before its first call has ended, PyTorch 2.3 prints any number."""
    if status.completed > status.called:
        return "unknown"
    return "none" if status.completed < 0 else f"up to {status.completed}"


def _alike(texts: Iterable[tuple[int, str]]) -> list[str]:
    """`ranks 0-2: ALLREDUCE` for each text, with the ranks that have it."""
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank, text in texts:
        ranks_of[text].append(rank)
    return [f"{ranks_text(ranks)}: {text}" for text, ranks in ranks_of.items()]
