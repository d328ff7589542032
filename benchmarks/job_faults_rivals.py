"""What other tools say of the faults of `job_faults.py`, asked in the ways that they document.

    job_faults.py OUT --rivals -- train.py ARGUMENT...

| rival | what it is | when it speaks |
| --- | --- | --- |
| nvrx relative | straggler detection of nvidia-resiliency-ext, between ranks | by itself |
| nvrx individual | the same, of a rank and its own best time | by itself |
| nvrx compute | nvrx relative, of the computation alone | by itself |
| torchfrtrace | PyTorch's analyzer of its Flight Recorder | of a stuck job |
| nvrx dumps | nvidia-resiliency-ext's analyzer of the same dumps | of a stuck job |
| NCCL RAS | the text of NCCL's own service | when it is asked |

nvrx has sections around the loader's next batch, the forward and the backward of a step, reports
each REPORT_STEPS steps and has its default thresholds. What it says of a section or of the GPUs is
a saying of its own. The section of `nvrx compute` is a favor: a script has it only where its
computation is apart from its communication. Without GPUs nvrx has the times of sections alone. The
others are asked ASK_S after a fault. A saying is right if it names the rank that was hit and no
other, and wrong if it names another; one of all ranks names none.
Where no rank is at fault, silence is right.

torchfrtrace has the first mismatch that it prints; it ends with an error that names the ranks
without a dump, as those that are stopped, which counts as naming them. Dumps of Gloo get the name
of their group, which PyTorch 2.15 leaves out of one place and without which torchfrtrace fails.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from job_faults_rivals_rank import ASKED, DUMPS, PREFIX, REPORTS, RIVALS

FILE = "rivals.jsonl"
ASK_S, HOLD_S = 15.0, 30.0  # after a fault: the question, and how long it lasts at least
STUCK_S = 5.0  # without a step
DUMP_LIMIT_S, ANALYZE_LIMIT_S, RAS_LIMIT_S = 5.0, 60.0, 10.0
RAS = "NCCL RAS"
ANALYZERS = {
    "torchfrtrace": ("torch.distributed.flight_recorder.fr_trace", "-p", PREFIX),
    "nvrx dumps": ("nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution", "--fr-path"),
}
SECTIONS = ("data_loading", "fwd", "bwd", "gpu")  # gpu: its kernels in all of them
NAMES = ("nvrx relative", "nvrx individual", "nvrx compute", *ANALYZERS, RAS)
_RANKS = re.compile(r"issing (?:dump files from )?ranks:? \{([\d, ]+)\}|Culprit rank (\d+)")
_TABLE = re.compile(r"PGID[^\n]*Missing Ranks *\n((?:[^\n]*\|[^\n]*\n?)*)")
_STACK = re.compile(r"^(?:.* at .*:\d+ *|  +File \".*|    +.*|Traceback .*)\n", re.MULTILINE)
_RAS_RANK = re.compile(r"^\s*Rank (\d+)\b", re.MULTILINE)


@dataclass
class Said:
    """What a rival said of a fault."""

    number: int
    name: str  # of the fault; empty in a clean time
    rank: int
    rival: str
    right_s: float | None = None  # until it named the rank, if it speaks by itself
    right: int = 0  # how often it named that rank alone
    wrong: list[list[int]] = field(default_factory=list)  # which others it named
    sayings: int = 0
    text: str = ""


def environment(folder: Path) -> dict[str, str]:
    """For the ranks of a job in the folder, which gets its folder of dumps."""
    (folder / DUMPS).mkdir()
    prefix = str(folder / DUMPS / PREFIX)
    return {
        RIVALS: "1",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_TEMP_FILE": prefix,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / "pipe_"),
    }


class Rivals:
    """Asks all during a fault of a job."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder, self._ranks = folder, ranks
        self._began_s = self._step_s = time.monotonic()
        self._steps = -1.0
        self._is_asked = self._is_stuck = False
        for dump in self._dumps():  # of a rank that was stopped until the end of its fault
            dump.unlink()
        self._ras = ""

    def look(self, steps: float) -> bool:
        """Ask when it is time; `steps` are those of all ranks. Whether the fault may end."""
        now_s = time.monotonic()
        if steps != self._steps:
            self._steps, self._step_s = steps, now_s
        if not self._is_asked and now_s - self._began_s >= ASK_S:
            self._is_asked = True
            self._ras = _ask_ras()
            self._is_stuck = now_s - self._step_s >= STUCK_S
            if self._is_stuck:
                self._ask_for_dumps()
        return now_s - self._began_s >= HOLD_S

    def _ask_for_dumps(self) -> None:
        """By NCCL's pipes and by a file for Gloo."""
        asked = self._folder / ASKED
        asked.touch()
        for pipe in self._folder.glob("pipe_*"):
            with contextlib.suppress(OSError):
                descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
                os.write(descriptor, b"1\n")
                os.close(descriptor)
        deadline = time.monotonic() + DUMP_LIMIT_S
        while len(self._dumps()) < self._ranks and time.monotonic() < deadline:
            time.sleep(0.2)
        asked.unlink()

    def _dumps(self) -> list[Path]:
        return list((self._folder / DUMPS).glob(f"{PREFIX}*"))

    def end(self, number: int, name: str, rank: int, right: set[int]) -> list[Said]:
        """What each said; `right` are the ranks that it may name."""
        sayings = {rival: Said(number, name, rank, rival) for rival in NAMES}
        for rival, at_s, named, text in [*self._reports(), *self._answers()]:
            said = sayings[rival]
            said.sayings += 1
            said.text = text or said.text
            if not named or len(named) == self._ranks:
                continue
            if named <= right:
                said.right += 1
                if at_s is not None and said.right_s is None:
                    said.right_s = round(at_s - self._began_s, 2)
            else:
                said.wrong.append(sorted(named))
        return list(sayings.values())

    def _reports(self) -> Iterator[tuple[str, float | None, set[int], str]]:
        path = self._folder / REPORTS
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            report = json.loads(line)
            if report["at"] < self._began_s:
                continue
            for rival, way, sections in (
                (NAMES[0], "relative", SECTIONS),
                (NAMES[1], "individual", SECTIONS),
                (NAMES[2], "relative", ("compute",)),
            ):
                for section in sections:
                    named = set(report[way].get(section, ()))
                    yield rival, report["at"], named, line if named else ""

    def _answers(self) -> Iterator[tuple[str, float | None, set[int], str]]:
        if self._ras:
            yield RAS, None, {int(rank) for rank in _RAS_RANK.findall(self._ras)}, self._ras
        if self._is_stuck and self._dumps():
            for rival, words in ANALYZERS.items():
                text = _analyze(words, self._folder / DUMPS)
                shown = _STACK.sub("", text).replace(str(self._folder), "OUT")
                yield rival, None, named_in(text), shown


def _analyze(words: tuple[str, ...], dumps: Path) -> str:
    """What an analyzer prints; nothing if it does not end in time."""
    line = [sys.executable, "-m", *words, str(dumps)]
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(line, capture_output=True, text=True, timeout=ANALYZE_LIMIT_S)
        return done.stdout + done.stderr
    return ""


def named_in(text: str) -> set[int]:
    """The ranks that an analyzer of dumps accuses: of its first mismatch, or in its table."""
    found = list[str]()
    for line in text.splitlines():
        found = [first or second for first, second in _RANKS.findall(line)]
        if found:
            break
    for rows in _TABLE.findall(text):
        found += [row.rsplit("|", 1)[1] for row in rows.splitlines()]
    return {int(rank) for ranks in found for rank in re.findall(r"\d+", ranks)}


def _ask_ras() -> str:
    from busbw.host import ras
    from busbw.host.source import Unavailable

    with contextlib.suppress(Unavailable):
        return ras.status(ras.address(), RAS_LIMIT_S)
    return ""


def append(out: Path, sayings: list[Said]) -> None:
    """Add lines of JSON."""
    with (out / FILE).open("a", encoding="utf-8") as file:
        for said in sayings:
            file.write(json.dumps(asdict(said)) + "\n")


def table(out: Path) -> str:
    """Counts by kind of fault and rival, of rivals that said anything; empty without any."""
    path = out / FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    said = [Said(**json.loads(line)) for line in lines]
    heads = "".join(f"{head:>8}" for head in ("runs", "sayings", "right", "wrong", "silent"))
    rows = [f"{'fault':24}{'rival':18}{heads}"] if said else []
    present = [rival for rival in NAMES if any(one.sayings for one in said if one.rival == rival)]
    for name in sorted({one.name for one in said}):
        for rival in present:
            chosen = [one for one in said if (one.name, one.rival) == (name, rival)]
            rows.append(f"{name or 'none':24}{rival:18}{_counts(chosen)}")
    return "\n".join(rows)


def _counts(said: list[Said]) -> str:
    sayings = sum(one.sayings for one in said)
    right, wrong = sum(one.right > 0 for one in said), sum(bool(one.wrong) for one in said)
    silent = sum(not one.right and not one.wrong for one in said)
    return "".join(f"{count:8}" for count in (len(said), sayings, right, wrong, silent))
