"""Reports of NCCL's RAS, in JSON (2.28.7 and newer) or text. Pure.

JSON has every rank with its counts of collectives. Text names only ranks that are missing, failed,
or differ from the others (nccl: src/ras/client_support.cc).
"""

import json
import re
from typing import Any

from busbw.job.types import CommStatus, RankStatus, RasReport

SILENT_PROBLEM, DEAD_PROBLEM = "does not answer NCCL's RAS", "is considered dead by NCCL's RAS"
LEFT_PROBLEM = "has left the communicator"
ERRORS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote error",
}
# NCCL 2.28.9 leaves the comma out for missing ranks
_NO_COMMA = re.compile(r'("nvml_dev":\s*-?\d+)(\s*"status")')
_VERSION = re.compile(r"NCCL version (\S+)")
_SECTION = re.compile(r"#\d+-\d+ \(([0-9a-f]+)\) ([A-Z]+)")
_DIFFERENT = re.compile(r"Communicator ranks have different (\w+) operation counts")
_LAUNCHED = re.compile(
    r"\d+ ranks have (?:launched up to operation (\d+)|not launched any operations)"
)
_WHERE = r"-- GPU (\d+)(?: \(NVML (\d+)\))? managed by process (\d+) on node (\S+)"
_STATE = (
    r"has launched up to operation (?P<count>\d+) |(?P<none>has not launched any operations)"
    r" |reported (?P<error>.+?) "
)
_RANK = re.compile(rf"Rank (\d+) (?:{_STATE})?{_WHERE}")
_PROCESS = re.compile(r"Process (\d+) on node (\S+) managing")


def parse(text: str) -> RasReport:
    """The report; without communicators if the text has none, or is not a report."""
    return _json(text) if text.lstrip().startswith("{") else _text(text)


def _json(text: str) -> RasReport:
    try:
        document = json.loads(_NO_COMMA.sub(r"\1,\2", text))
        return RasReport(
            nccl=str(document["nccl_version"]),
            complete=True,
            comms=[_comm(comm) for comm in document["communicators"]],
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ):  # cut off, or of a version to come
        return RasReport()


def _comm(comm: dict[str, Any]) -> CommStatus:
    ranks = [_rank(rank) for rank in (*comm["ranks"], *comm["missing_ranks"])]
    largest: dict[str, int] = {}
    for rank in ranks:
        for function, count in rank.counts.items():
            largest[function] = max(count, largest.get(function, count))
    return CommStatus(name=str(comm["hash"]), size=int(comm["size"]), ranks=ranks, most=largest)


def _rank(rank: dict[str, Any]) -> RankStatus:
    counts = rank.get("collective_counts", {})
    return RankStatus(
        rank=int(rank["rank"]),
        host=str(rank["host"]),
        pid=int(rank["pid"]),
        gpu=int(rank["cuda_dev"]),
        nvml=int(rank["nvml_dev"]),
        counts={str(name): int(count) for name, count in counts.items()},
        problem=_problem(rank["status"]),
    )


def _problem(status: dict[str, Any]) -> str:
    """What NCCL says is wrong with a rank, '' if nothing is."""
    if "considered_dead" in status:  # a missing rank
        if status["considered_dead"]:
            return DEAD_PROBLEM
        return SILENT_PROBLEM if status["unresponsive"] else LEFT_PROBLEM
    for key in ("init_state", "async_error"):
        code = status.get(key, 0)
        if code in ERRORS:
            return f"reported: {ERRORS[code]}"
    return ""


def _text(text: str) -> RasReport:
    version = _VERSION.search(text)
    reader = _RasText()
    for line in text.splitlines():
        reader.line(line.strip())
    return RasReport(nccl=version[1] if version else "", comms=list(reader.comms.values()))


class _RasText:
    """The sections of a report in text, line by line."""

    def __init__(self) -> None:
        self.comms: dict[str, CommStatus] = {}
        self._comm: CommStatus | None = None
        self._kind, self._function, self._count = "", "", 0
        self._dead: set[tuple[str, int]] = set()

    def line(self, line: str) -> None:
        if line in ("DEAD", "INCOMPLETE", "TIMEOUT"):
            self._kind, self._comm = line, None
        elif match := _SECTION.match(line):
            name = f"0x{match[1].lstrip('0')}"
            self._comm = self.comms.setdefault(match[1], CommStatus(name=name))
            self._kind, self._function = match[2], ""
        elif match := _DIFFERENT.match(line):
            self._function = match[1]
        elif match := _LAUNCHED.match(line):
            self._launched(int(match[1] or 0))
        elif (match := _PROCESS.match(line)) and self._kind == "DEAD":
            self._dead.add((match[2], int(match[1])))
        elif (match := _RANK.match(line)) and self._comm:
            self._rank(self._comm, match)

    def _launched(self, count: int) -> None:
        """The ranks of the next lines launched so many operations."""
        self._count = count
        if self._comm and self._function:
            self._comm.most[self._function] = max(count, self._comm.most.get(self._function, 0))

    def _rank(self, comm: CommStatus, match: re.Match[str]) -> None:
        number, (gpu, nvml, pid, host) = int(match[1]), match.groups()[-4:]
        rank = next((rank for rank in comm.ranks if rank.rank == number), None)
        if rank is None:
            rank = RankStatus(
                rank=number, host=host, pid=int(pid), gpu=int(gpu), nvml=int(nvml or gpu)
            )
            comm.ranks.append(rank)
        if match["error"]:
            rank.problem = f"reported: {match['error']}"
        elif self._kind == "INCOMPLETE":
            rank.problem = DEAD_PROBLEM if (host, int(pid)) in self._dead else SILENT_PROBLEM
        elif self._function:
            if match["count"] or match["none"]:
                self._launched(int(match["count"] or 0))
            rank.counts = {**rank.counts, self._function: self._count}
