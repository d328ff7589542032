"""Compares each method's losses with those of plain DDP, and says so in a table.

A round gives one difference: of the mean losses of the last quarter of the steps, in runs with the
same seeds. Steps of one run follow each other, and are not independent samples.
"""

import math
from statistics import fmean
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.finding import Verdict
from busbw.core.shown import Shown
from busbw.core.sizes import counted
from busbw.stats.rounds import Interval, mean_interval
from busbw.ui.columns import Column, aligned, wrapped
from busbw_accel.settings import Settings
from busbw_accel.train.losses.runs import LossRuns, ScriptLosses, last_quarter
from busbw_accel.train.methods import NONE, parse
from busbw_accel.train.rounds_text import note, plus_minus

ALIKE = "all rounds are alike"
MORE = "more --rounds or --losses may tell"
NO_BUCKET = f"no bucket has the {Settings().compress_least} bytes from which it compresses"
COLUMNS = (
    Column(title="method", value=lambda row: row.method, left=True),
    Column(title="loss", value=lambda row: _number(row.loss)),
    Column(title="above none, %", value=lambda row: _percent(row)),
    Column(title="verdict", value=lambda row: _shown(row.verdict), left=True),
    Column(title="", value=lambda row: row.text, left=True),
)


class MethodLoss(msgspec.Struct, frozen=True):
    """A row of the table."""

    method: str
    loss: Annotated[float, Meta(description="mean of the last quarter of the steps")]
    share: Annotated[float, Meta(description="above the loss of plain DDP, as a share of it")]
    interval: Annotated[Interval | None, Meta(description="of `share`; null with one round")]
    verdict: Verdict
    text: str


class LossReport(Shown, msgspec.Struct, kw_only=True, tag="busbw.losses/1", tag_field="schema"):
    """The comparison of a training's losses by each method with those by plain DDP."""

    name: Annotated[str, Meta(description="of the training's command")]
    ranks: int
    rounds: Annotated[int, Meta(description="in each, every method trains with the same seeds")]
    steps: int
    tolerance: Annotated[float, Meta(description="of a higher loss, as a share")]
    loss: Annotated[float, Meta(description="that of plain DDP")]
    methods: list[MethodLoss]
    notes: list[str] = []


def report(runs: LossRuns, tolerance: float) -> LossReport:
    plain = list(runs.of(NONE).values())
    steps = min(len(run.losses) for run in runs.done)
    rows = judge(runs, tolerance)
    notes = list(runs.notes())
    if any(row.text == ALIKE for row in rows):
        notes.append(
            "the script's seeds are not those that busbw shifts: {round} in COMMAND stands for the"
            " number of the round, as in --seed {round}"
        )
    return LossReport(
        name=runs.name,
        ranks=plain[0].world,
        rounds=len(plain),
        steps=steps,
        tolerance=tolerance,
        loss=fmean(_mean(run, steps) for run in plain),
        methods=rows,
        notes=notes,
    )


def judge(runs: LossRuns, tolerance: float) -> list[MethodLoss]:
    """The rows of all methods. FAIL: the loss is surely higher than plain DDP's by more than
    `tolerance`; PASS: it surely is not; UNKNOWN: the interval has values on both sides.
    """
    plain = runs.of(NONE)
    steps = min(len(run.losses) for run in runs.done)
    alike = len({tuple(run.losses[:steps]) for run in plain.values()}) < len(plain)
    return [_judged(method, runs, steps, tolerance, alike=alike) for method in runs.methods]


def _judged(
    method: str, runs: LossRuns, steps: int, tolerance: float, *, alike: bool
) -> MethodLoss:
    own, plain = runs.of(method), runs.of(NONE)
    if method in runs.failed:
        text = f"a run failed: {runs.failed[method]}"
        return MethodLoss(method, math.nan, math.nan, None, Verdict.UNKNOWN, text)
    pairs = [(_mean(own[number], steps), _mean(plain[number], steps)) for number in sorted(own)]
    loss, base = (fmean(values) for values in zip(*pairs, strict=True))
    if not math.isfinite(loss):
        text = "diverged: its loss is not finite, and none's is"
        return MethodLoss(method, loss, math.nan, None, Verdict.FAIL, text)
    if base == 0:
        text = "the loss of none is 0"
        return MethodLoss(method, loss, math.nan, None, Verdict.UNKNOWN, text)
    if all(run.losses == plain[number].losses for number, run in own.items()):
        text = f"the same in every step: it loses nothing, or {NO_BUCKET}"
        return MethodLoss(method, loss, 0.0, None, Verdict.PASS, text)
    shares = [(value - before) / abs(base) for value, before in pairs]
    interval = mean_interval(shares)
    if alike or interval is None:
        text = "one round has no interval" if interval is None else ALIKE
        return MethodLoss(method, loss, fmean(shares), None, Verdict.UNKNOWN, text)
    verdict, text = _verdict(interval, tolerance)
    return MethodLoss(method, loss, fmean(shares), interval, verdict, text)


def _mean(run: ScriptLosses, steps: int) -> float:
    return fmean(last_quarter(run.losses[:steps]))


def _verdict(interval: Interval, tolerance: float) -> tuple[Verdict, str]:
    low, high = interval
    between = f"({100 * low:.3g} to {100 * high:.3g} %)"
    mark = f"{100 * tolerance:g} %"
    if low > tolerance:
        return Verdict.FAIL, f"worse by more than {mark} {between}"
    if high > tolerance:
        return Verdict.UNKNOWN, f"may be worse by more than {mark} {between}: {MORE}"
    if low > 0:
        return Verdict.PASS, f"worse, but by at most {mark} {between}"
    if high < 0:
        return Verdict.PASS, f"better {between}"
    return Verdict.PASS, "not distinguishable from none"


def text(report: LossReport, width: int | None = None) -> str:
    """The whole answer."""
    last = len(last_quarter(range(report.steps)))
    meaning = note(report.rounds)
    head = (
        f"# {report.name}: DistributedDataParallel on {counted(report.ranks, 'rank')},"
        f" {counted(report.rounds, 'round')}{', each with other seeds' if meaning else ''}\n"
        f"# loss: the mean of the last {last} of {counted(report.steps, 'step')}, over ranks and"
        " rounds\n" + (f"# {meaning}, between runs with the same seeds\n" if meaning else "")
    )
    first = MethodLoss(NONE, report.loss, 0.0, None, Verdict.SKIP, "plain DDP")
    table = aligned(COLUMNS, [first, *report.methods], width, wrap_last=True)
    notes = "".join(f"note: {line}\n" for line in report.notes)
    passed = (row for row in report.methods if row.verdict is Verdict.PASS)
    lines = "".join(f"  {parse(row.method).code}\n" for row in passed)
    return wrapped(head, width) + "\n" + table + wrapped(notes + lines, width)


def _number(value: float) -> str:
    return f"{value:.5g}" if math.isfinite(value) else "-"


def _shown(verdict: Verdict) -> str:
    return "" if verdict is Verdict.SKIP else verdict.value.upper()


def _percent(row: MethodLoss) -> str:
    if not math.isfinite(row.share):
        return "-"
    return plus_minus(row.share, row.interval, 100, 2)
