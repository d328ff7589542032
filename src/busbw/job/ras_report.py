"""Reports of NCCL's RAS, in JSON (2.28.7 and newer) or text. Pure.

JSON has every rank with its counts of collectives. Text names only ranks that are missing, failed,
or differ from the others (nccl: src/ras/client_support.cc).
"""

import json
import re
from typing import Any

from busbw.job.types import CommSeen, RankSeen, RasSeen

SILENT, DEAD = "does not answer NCCL's RAS", "is considered dead by NCCL's RAS"
LEFT = "has left the communicator"
ERRORS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote error",
}
# NCCL 2.28.9 leaves it out for missing ranks
_NO_COMMA = re.compile(r'("nvml_dev":\s*-?\d+)(\s*"status")')
_VERSION = re.compile(r"NCCL version (\S+)")
_SECTION = re.compile(r"#\d+-\d+ \(([0-9a-f]+)\) ([A-Z]+)")
_DIFFERENT = re.compile(r"Communicator ranks have different (\w+) operation counts")
_SOME = re.compile(r"\d+ ranks have (?:launched up to operation (\d+)|not launched any operations)")
_WHERE = r"-- GPU (\d+)(?: \(NVML (\d+)\))? managed by process (\d+) on node (\S+)"
_SAID = (
    r"has launched up to operation (?P<count>\d+) |(?P<none>has not launched any operations)"
    r" |reported (?P<error>.+?) "
)
_RANK = re.compile(rf"Rank (\d+) (?:{_SAID})?{_WHERE}")
_PROCESS = re.compile(r"Process (\d+) on node (\S+) managing")


def parse(text: str) -> RasSeen:
    """The report; without communicators if the text has none, or is not a report."""
    return _json(text) if text.lstrip().startswith("{") else _text(text)


def _json(text: str) -> RasSeen:
    try:
        document = json.loads(_NO_COMMA.sub(r"\1,\2", text))
        return RasSeen(
            nccl=str(document["nccl_version"]),
            complete=True,
            comms=[_comm(one) for one in document["communicators"]],
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ):  # cut off, or of a version to come
        return RasSeen()


def _comm(found: dict[str, Any]) -> CommSeen:
    ranks = [_rank(one) for one in (*found["ranks"], *found["missing_ranks"])]
    functions = dict.fromkeys(name for rank in ranks for name in rank.counts)
    most = {
        name: max(rank.counts[name] for rank in ranks if name in rank.counts) for name in functions
    }
    return CommSeen(name=str(found["hash"]), size=int(found["size"]), ranks=ranks, most=most)


def _rank(found: dict[str, Any]) -> RankSeen:
    status, counts = (
        found["status"],
        {str(name): int(count) for name, count in found.get("collective_counts", {}).items()},
    )
    if "considered_dead" in status:
        problem = DEAD if status["considered_dead"] else SILENT if status["unresponsive"] else LEFT
    else:
        error = next(
            (
                code
                for key in ("init_state", "async_error")
                if (code := status.get(key, 0)) in ERRORS
            ),
            0,
        )
        problem = f"reported: {ERRORS[error]}" if error else ""
    return RankSeen(
        rank=int(found["rank"]),
        host=str(found["host"]),
        pid=int(found["pid"]),
        gpu=int(found["cuda_dev"]),
        nvml=int(found["nvml_dev"]),
        counts=counts,
        problem=problem,
    )


def _text(text: str) -> RasSeen:
    version = _VERSION.search(text)
    reader = _Text()
    for line in text.splitlines():
        reader.line(line.strip())
    return RasSeen(nccl=version[1] if version else "", comms=list(reader.comms.values()))


class _Text:
    """The sections of a report in text, line by line."""

    def __init__(self) -> None:
        self.comms: dict[str, CommSeen] = {}
        self._comm: CommSeen | None = None
        self._kind, self._function, self._count = "", "", 0
        self._dead: set[tuple[str, int]] = set()

    def line(self, line: str) -> None:
        """Take the next line."""
        if line in ("DEAD", "INCOMPLETE", "TIMEOUT"):
            self._kind, self._comm = line, None
        elif found := _SECTION.match(line):
            self._comm = self.comms.setdefault(found[1], CommSeen(name=f"0x{found[1].lstrip('0')}"))
            self._kind, self._function = found[2], ""
        elif found := _DIFFERENT.match(line):
            self._function = found[1]
        elif found := _SOME.match(line):
            self._launched(int(found[1] or 0))
        elif (found := _PROCESS.match(line)) and self._kind == "DEAD":
            self._dead.add((found[2], int(found[1])))
        elif (found := _RANK.match(line)) and self._comm:
            self._rank(self._comm, found)

    def _launched(self, count: int) -> None:
        self._count = count
        if self._comm and self._function:
            self._comm.most[self._function] = max(count, self._comm.most.get(self._function, 0))

    def _rank(self, comm: CommSeen, found: re.Match[str]) -> None:
        number, (gpu, nvml, pid, host) = int(found[1]), found.groups()[-4:]
        rank = next((one for one in comm.ranks if one.rank == number), None)
        if rank is None:
            rank = RankSeen(
                rank=number, host=host, pid=int(pid), gpu=int(gpu), nvml=int(nvml or gpu)
            )
            comm.ranks.append(rank)
        if found["error"]:
            rank.problem = f"reported: {found['error']}"
        elif self._kind == "INCOMPLETE":
            rank.problem = DEAD if (host, int(pid)) in self._dead else SILENT
        elif self._function:
            if found["count"] or found["none"]:
                self._launched(int(found["count"] or 0))
            rank.counts = {**rank.counts, self._function: self._count}
