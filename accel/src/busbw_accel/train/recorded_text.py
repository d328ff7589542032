"""The parts of a plan's text that are about a recorded training: its buckets and its step, and what
to change in it.
"""

from dataclasses import dataclass

from busbw.core.sizes import counted, format_size
from busbw.pattern.training.recorded_step import RecordedBucket, RecordedStep
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import library, machine
from busbw_accel.train.kinds import PlanResult
from busbw_accel.train.plan_types import AS_IS, MeasuredExchange, Plan
from busbw_accel.train.rounds_text import MS, note
from busbw_accel.train.transports import BY_NAME

MB = 1e6
DROP_ORDER = ("ready ms",)
ROWS = 8  # sizes of buckets that are shown
NO_TIMES = (
    "\nno recommendation: the record has no times, so that it is unknown which part of an exchange"
    " a step hides\nhint: busbw plan -- COMMAND, or busbw capture --timed, records them\n"
)


def header(result: PlanResult, recorded: RecordedStep, width: int | None = None) -> str:
    """The training, and where its exchanges are measured."""
    text = (
        f"# {recorded.source}: DistributedDataParallel on {counted(recorded.ranks, 'rank')},"
        f" {counted(len(recorded.buckets), 'bucket')}, {recorded.nbytes / MB:.1f} MB of gradients"
        f" a step\n# measured on {machine(result)}, {library(result)}\n"
    )
    return wrapped(text, width)


def surveyed(result: PlanResult, recorded: RecordedStep, plan: Plan, width: int | None) -> str:
    """The step and its buckets."""
    lines = bucket_lines(recorded, plan)
    table = aligned(columns(recorded), lines[:ROWS], width, DROP_ORDER)
    more = len(lines) - ROWS
    table += f"and {counted(more, 'other size')}\n" if more > 0 else ""
    text = wrapped(step(result, recorded, plan), width)
    return f"{text}\n{table}{wrapped(notes(result, recorded), width)}"


def step(result: PlanResult, recorded: RecordedStep, plan: Plan) -> str:
    """What a step takes, and the meaning of `+-`."""
    meaning = note(result.training.spec.rounds)
    text = f"# {_step(recorded, plan, _plain(plan))}\n"
    return text + (f"# {meaning}\n" if meaning else "")


def notes(result: PlanResult, recorded: RecordedStep) -> str:
    """What a step sends besides gradients, and what the record lacks."""
    text = ""
    if recorded.others:
        text += f"besides, a step sends {', '.join(recorded.others)}, which stays as it is\n"
    return text + "".join(f"note: {line}\n" for line in _notes(result, recorded))


def _plain(plan: Plan) -> MeasuredExchange | None:
    """Plain DDP with the recorded buckets."""
    for exchange in plan.exchanges:
        if (exchange.transport, exchange.code, exchange.bucket_mb) == (AS_IS, "", None):
            return exchange
    return None


def _step(recorded: RecordedStep, plan: Plan, plain: MeasuredExchange | None) -> str:
    if recorded.step_s is None:
        return "what a step takes is unknown: the record has no times"
    step = (
        f"a step took {MS * recorded.step_s:.2f} ms, the median of"
        f" {counted(recorded.steps, 'step')}"
    )
    if recorded.waited_s is not None:
        waited, source = recorded.waited_s, recorded.waited_source
    elif plain is not None:
        waited, source = plan.exposed_s(plain), "by the exchange that was measured here"
    else:
        return step
    return f"{step}; {MS * waited:.2f} of it waited for gradients ({source})"


def _notes(result: PlanResult, recorded: RecordedStep) -> list[str]:
    notes, ranks = list(recorded.notes), result.world.ranks
    if ranks != recorded.ranks:
        notes.append(
            f"the exchanges are those of {counted(ranks, 'rank')}; the step is that of"
            f" {recorded.ranks}"
        )
    if recorded.hook:
        notes.append(
            f"the training has the communication hook {recorded.hook}: leave it out to use another"
            " method"
        )
    if not recorded.has_shapes:
        notes.append(
            "the shapes of parameters are unknown: powersgd is measured on matrices of 1024 columns"
        )
    return notes


@dataclass(frozen=True, slots=True)
class _BucketLine:
    """All buckets of about one size and of one type; seconds of one step."""

    size: str
    dtype: str
    count: int
    nbytes: int
    ready_s: tuple[float, float]
    exchange_s: float | None


def bucket_lines(recorded: RecordedStep, plan: Plan) -> list[_BucketLine]:
    """The buckets, the largest part of a step first."""
    plain = _plain(plan)
    groups: dict[tuple[str, str], list[int]] = {}
    for at, bucket in enumerate(recorded.buckets):
        groups.setdefault((format_size(bucket.nbytes), bucket.dtype), []).append(at)
    lines = []
    for (size, dtype), numbers in groups.items():
        members = [recorded.buckets[at] for at in numbers]
        exchange_s = sum(plain.bucket_s[at] for at in numbers) if plain else None
        nbytes = sum(bucket.nbytes for bucket in members)
        lines.append(_BucketLine(size, dtype, len(members), nbytes, _span(members), exchange_s))
    return sorted(lines, key=lambda line: line.nbytes, reverse=True)


def _span(buckets: list[RecordedBucket]) -> tuple[float, float]:
    readies = [bucket.ready_s for bucket in buckets]
    return min(readies), max(readies)


def columns(recorded: RecordedStep) -> list[Column]:
    """The columns, whose values take one of `bucket_lines`."""
    shown = [
        Column(title="bucket", value=lambda line: line.size),
        Column(title="type", value=lambda line: line.dtype, left=True),
        Column(title="a step", value=lambda line: line.count),
    ]
    if recorded.step_s is not None:
        shown.append(Column(title="ready ms", value=lambda line: _ready(line.ready_s)))
    shown.append(Column(title="exchange ms", value=lambda line: _milliseconds(line.exchange_s)))
    if recorded.step_s is not None:
        step_s = recorded.step_s
        shown.append(
            Column(title="of a step", value=lambda line: _percent(line.exchange_s, step_s))
        )
    return shown


def _ready(span: tuple[float, float]) -> str:
    first, last = (f"{MS * ready_s:.1f}" for ready_s in span)
    return first if first == last else f"{first} - {last}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{MS * seconds:.2f}"


def _percent(seconds: float | None, step_s: float) -> str:
    return "-" if seconds is None else f"{100 * seconds / step_s:.1f} %"


def comparison(recorded: RecordedStep, plan: Plan) -> str:
    """How the measured exchange compares with the recorded one; '' if either is unknown."""
    plain = _plain(plan)
    if plain is None or recorded.step_s is None or recorded.waited_s is None:
        return ""
    predicted_s, step_s = plan.step_s(plain), recorded.step_s
    return (
        f"compared: with the exchanges measured here, a step by none takes {MS * predicted_s:.2f}"
        f" ms; the recorded step took {MS * step_s:.2f} ({100 * (predicted_s / step_s - 1):+.1f} %)"
        "\n"
    )


def lines(chosen: MeasuredExchange) -> list[str]:
    """The lines to put into the training."""
    shell = BY_NAME[chosen.transport].shell
    texts = [f"before its start: {shell}"] if shell else []
    if chosen.bucket_mb is not None:
        size = f"bucket_cap_mb={chosen.bucket_mb:g}"
        return [*texts, f"model = DistributedDataParallel(model, {size}, ...)"]
    if chosen.code.startswith("busbw_accel"):
        place = "after model = DistributedDataParallel(model, ...)"
        place += " and its optimizer" if chosen.local else ""
        texts += ["import busbw_accel", f"# {place}"]
    if chosen.code:
        return [*texts, chosen.code]
    return texts or ["nothing to change: DistributedDataParallel as it is"]
