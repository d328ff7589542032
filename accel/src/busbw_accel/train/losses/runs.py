"""Runs the user's script by plain DDP and by each method, in rounds, and reads its losses."""

import csv
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import msgspec

from busbw.core.env import CAPTURE
from busbw.core.errors import NoMeasurement, TimedOut
from busbw.core.sizes import counted, span
from busbw.pattern import capture
from busbw_accel.train.losses.types import START, VARIABLE, Line, RunRequest
from busbw_accel.train.methods import NONE

FILE = "losses.csv"
RUN_WORD, ROUND_WORD = "{run}", "{round}"  # in the words of the command
SAME_START = 1e-3  # by which the first losses of runs with the same seeds may differ
DDP_HINT = "methods are for a model under DistributedDataParallel, not FSDP or DataParallel"


class Resumed(NoMeasurement):
    """A run continues from what another has saved, so that no two can be compared."""


@dataclass(frozen=True, slots=True)
class ScriptLosses:
    """The losses of one run: the mean over the ranks of each step, NaN where one is not finite."""

    method: str
    round: int
    losses: list[float]
    ranks: int  # whose losses they are
    world: int
    loaded: str = ""  # a file of an earlier run


@dataclass(slots=True)
class LossRuns:
    """All runs of a command. `report` gets a line about each."""

    command: Sequence[str]
    methods: Sequence[str]  # without `none`, which all are compared with
    steps: int
    rounds: int
    limit_s: float  # of one run
    name: str  # of the command, in sentences
    report: Callable[[str], None]
    folder: Path | None = None  # for FILE
    done: list[ScriptLosses] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # methods whose run failed, and why
    _first_s: float = field(default_factory=time.time)

    def run(self) -> None:
        """Make all runs. NoMeasurement if the script by plain DDP has no losses to compare with."""
        for number in range(self.rounds):
            self._run_one(NONE, number)
            for method in self.methods:
                if method not in self.failed:
                    self._try(method, number)

    def _try(self, method: str, number: int) -> None:
        try:
            self._run_one(method, number)
        except Resumed:
            raise
        except NoMeasurement as error:
            self.failed[method] = error.message
            self.report(f"note: {method} is left out: {error.message}")

    def _run_one(self, method: str, number: int) -> None:
        begun_s = time.time()
        with tempfile.TemporaryDirectory(prefix="busbw-losses-") as folder:
            Path(folder, "run").mkdir()
            request = RunRequest(folder, method, self.steps, number, self._first_s, begun_s)
            self._start(request)
            run = self._read(request)
        self._check(run)
        self.done.append(run)
        self._save(run)
        last = fmean(last_quarter(run.losses))
        self.report(
            f"busbw: round {number + 1} of {self.rounds}, {method}:"
            f" {counted(len(run.losses), 'step')} in {span(time.time() - begun_s)},"
            f" loss {last:.5g}{self._left()}"
        )

    def _left(self) -> str:
        """How long the runs after the first round will take."""
        methods = 1 + len(self.methods) - len(self.failed)
        left = self.rounds * methods - len(self.done)
        if len(self.done) < methods or left <= 0:
            return ""
        each_s = (time.time() - self._first_s) / len(self.done)
        return f"; {span(left * each_s)} left"

    def _start(self, request: RunRequest) -> None:
        values = {
            **capture.python_path(),
            CAPTURE.with_torch: START,
            VARIABLE: msgspec.json.encode(request).decode(),
            "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        }
        own = {RUN_WORD: f"{request.folder}/run", ROUND_WORD: str(request.round + 1)}
        words = [_replaced(word, own) for word in self.command]
        try:
            code = capture.run(words, values, sys.stderr.fileno(), self.limit_s, is_part=True)
        except TimedOut as error:
            raise TimedOut(
                f"{error.message}: {self.name} has not made {counted(self.steps, 'step')} of a"
                " DistributedDataParallel model",
                "give more time: --capture-limit, or fewer steps: --losses; where a rank has"
                " ended, its output is above",
            ) from error
        if code:
            raise NoMeasurement(
                f"{self.name} ended with {code}", "run it without busbw first; its output is above"
            )

    def _read(self, request: RunRequest) -> ScriptLosses:
        files = sorted(Path(request.folder).glob("rank_*.jsonl"))
        if request.file(0) not in files:
            raise self._nothing(elsewhere=bool(files))
        by_rank = [_lines(file) for file in files]
        first = by_rank[0] + by_rank[-1]
        world = max(line.world for line in first)
        if world == 1:
            raise NoMeasurement(
                f"{self.name} has one rank, which exchanges no gradients", "start two ranks or more"
            )
        if any(line.hook for line in first):
            raise NoMeasurement(
                f"{self.name} registers a communication hook itself, and a model has only one",
                "leave out register_comm_hook and attach; busbw plan --losses applies methods",
            )
        by_step = list(zip(*(_losses(lines) for lines in by_rank), strict=False))
        loaded = next((line.loaded for line in first if line.loaded), "")
        shapes = [line.shape for line in first if line.shape is not None]
        if not by_step and shapes:
            raise NoMeasurement(
                f"{self.name} calls backward on a tensor of shape {list(shapes[0])}: it has no loss"
                " of one number",
                "call backward on the mean: loss.mean().backward()",
            )
        losses = [fmean(values) for values in by_step]
        return ScriptLosses(request.method, request.round, losses, len(files), world, loaded)

    def _nothing(self, *, elsewhere: bool) -> NoMeasurement:
        if elsewhere:
            return NoMeasurement(
                f"rank 0 of {self.name} ran on another host",
                "start all ranks by one command on the host of rank 0: mpirun or srun",
            )
        return NoMeasurement(f"{self.name} ended without a DistributedDataParallel model", DDP_HINT)

    def _check(self, run: ScriptLosses) -> None:
        """NoMeasurement if the run cannot be compared with those before, Resumed if none can."""
        before = self.of(NONE).get(run.round)
        begins_alike = before is None or (bool(run.losses) and not _begin_differently(before, run))
        if run.loaded and (not run.losses or not begins_alike):
            raise Resumed(
                f"{self.name} continues from {run.loaded}, which an earlier of these runs has"
                " saved, so that its losses cannot be compared",
                f"switch that off, or give each run a folder of its own: {RUN_WORD} in COMMAND"
                f" stands for one, as in --save {RUN_WORD}/model.pt",
            )
        if not run.losses:
            raise NoMeasurement(
                f"{self.name} ended before the first step of its DistributedDataParallel model",
                "let it call backward on a loss",
            )
        if run.method == NONE and not all(map(math.isfinite, last_quarter(run.losses))):
            raise NoMeasurement(
                f"the loss of {self.name} by plain DistributedDataParallel is not finite from step"
                f" {_first_not_finite(run.losses)} on, in round {run.round + 1}",
                "a lower learning rate, or fewer steps: --losses",
            )

    def of(self, method: str) -> dict[int, ScriptLosses]:
        """The runs of a method by their round."""
        return {run.round: run for run in self.done if run.method == method}

    def notes(self) -> Iterator[str]:
        """What limits the comparison."""
        plain = self.of(NONE)
        steps = min(len(run.losses) for run in self.done)
        if steps < self.steps:
            yield f"the training ended by itself after {steps} of {counted(self.steps, 'step')}"
        if any(_begin_differently(plain[run.round], run) for run in self.done):
            yield (
                "runs with the same seeds do not begin with the same loss: the script draws numbers"
                " that busbw cannot seed, which makes the intervals wider"
            )
        run = self.done[0]
        if run.ranks < run.world:
            yield f"the losses are those of {run.ranks} of {counted(run.world, 'rank')}"

    def _save(self, run: ScriptLosses) -> None:
        if self.folder is None:
            return
        path = self.folder / FILE
        with path.open("a", newline="") as file:
            table = csv.writer(file)
            if len(self.done) == 1:
                table.writerow(["round", "method", "step", "loss"])
            for step, loss in enumerate(run.losses, 1):
                table.writerow([run.round + 1, run.method, step, loss])


def last_quarter(losses: Sequence[float]) -> Sequence[float]:
    """The losses that are compared: of the last quarter of the steps, at least one."""
    return losses[-max(1, len(losses) // 4) :]


def _replaced(word: str, own: dict[str, str]) -> str:
    for name, value in own.items():
        word = word.replace(name, value)
    return word


def _lines(file: Path) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in file.read_bytes().splitlines()]


def _losses(lines: Sequence[Line]) -> list[float]:
    return [math.nan if line.loss is None else line.loss for line in lines if line.step]


def _first_not_finite(losses: Sequence[float]) -> int:
    return 1 + next(at for at, loss in enumerate(losses) if not math.isfinite(loss))


def _begin_differently(before: ScriptLosses, run: ScriptLosses) -> bool:
    first, other = before.losses[0], run.losses[0]
    return not math.isclose(first, other, rel_tol=SAME_START)
