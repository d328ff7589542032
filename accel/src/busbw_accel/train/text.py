"""The text of a training benchmark.

It has the lines that Horovod's benchmark prints, and below them a table of all methods.
"""

from collections.abc import Sequence
from statistics import median, quantiles

from busbw.core.result import Outcome
from busbw.stats import rounds
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import finding_text, library, machine, text_or_unknown
from busbw_accel.train.kinds import PlanResult, TrainResult
from busbw_accel.train.methods import TORCHFT_DILOCO
from busbw_accel.train.rounds_text import (
    contradiction_text,
    note,
    percent_plus_minus,
    plus_minus,
    unclear_text,
)
from busbw_accel.train.types import ALONE, TrainingRuns
from busbw_accel.train.variation import contradictions, parts, share_interval, unclear

MB = 1e6
UNMEASURABLE = "~0"
UNMEASURABLE_NOTE = f"{UNMEASURABLE}: less than can be measured; steps vary by more\n"
DROP_ORDER = (
    "10 % - 90 %",
    "MB counted",
    "MB seen",
    "codec ms",
    "of alone",
    "exposed ms",
    "network ms",
)


def device(result: Outcome) -> str:
    """What a rank runs on, as Horovod's benchmark calls it."""
    return "GPU" if any(gpu.bus for gpu in result.world.devices) else "CPU"


def header(
    result: TrainResult | PlanResult, width: int | None = None, *, iterations: bool = True
) -> str:
    training = result.training
    spec = training.spec
    sequence = f" of {spec.sequence} tokens" if training.unit == "seq" else ""
    turns = f", in each of {spec.rounds} rounds" if spec.rounds > 1 else ""
    counts = ""
    if iterations:
        steps = f"{spec.iters} iterations of {spec.steps} steps"
        if any("every=" in method or method == TORCHFT_DILOCO for method in spec.methods):
            steps += " or a multiple of every"
        counts = f"; {steps} after {spec.warmup} of warm-up{turns}"
    text = (
        f"# {spec.model}: {training.parameters:,} parameters,"
        f" {training.gradients / MB:.1f} MB of gradients a step\n"
        f"# {machine(result)}, {library(result)}\n"
        f"# batch {spec.batch_size}{sequence} a rank,"
        f" {spec.precision}, buckets of {spec.bucket_mb:g} MB{counts}\n"
    )
    return wrapped(text, width)


def iteration(result: TrainResult, method: str, number: int, rate: float) -> str:
    """One line, for the first iteration below the name of the method."""
    training = result.training
    heading = f"\n{method}\n" if number == 0 else ""
    return f"{heading}Iter #{number}: {rate:.1f} {training.unit}/sec per {device(result)}\n"


def method_end(result: TrainResult, method: str) -> str:
    """Horovod's two lines: the rate of a method over all its iterations so far."""
    training, kind, ranks = result.training, device(result), result.world.ranks
    rate = training.rate(method)
    if rate is None:
        return ""
    return (
        f"{training.unit.capitalize()}/sec per {kind}: {rate_text(rate)}\n"
        f"Total {training.unit}/sec on {ranks} {kind}(s): {rate_text(rate, ranks)}\n"
    )


def rate_text(rate: tuple[float, float | None], ranks: int = 1) -> str:
    """`125.8 +-0.8`; one iteration alone has no spread."""
    mean, spread = rate
    return f"{ranks * mean:.1f}" + (f" +-{ranks * spread:.1f}" if spread is not None else "")


def footer(result: TrainResult, width: int | None = None) -> str:
    """The table, the step on a perfect network, errors and findings."""
    names = result.training.methods
    table = "\n" + aligned(columns(result), names, width, DROP_ORDER) if names else ""
    below = notes(result, explain=UNMEASURABLE in table)
    return table + wrapped(below + "".join(map(finding_text, result.findings)), width)


def notes(result: TrainResult, *, explain: bool) -> str:
    """What stands below the table. With `explain` also what UNMEASURABLE means."""
    text = UNMEASURABLE_NOTE if explain else ""
    text += _below(result.training)
    text += contradiction(result) or _unclear(result)
    return text + "".join(f"error: {error}\n" for error in result.errors)


def contradiction(result: TrainResult) -> str:
    """Which figures contradict each other, and what to do; '' if none do."""
    return contradiction_text(
        "no comparison", contradictions(result.training), result, result.training.spec.rounds
    )


def render_all(result: TrainResult, width: int | None = None) -> str:
    """The whole text of a stored result."""
    text = header(result, width)
    for run in result.training.runs:
        text += "".join(
            iteration(result, run.method, number, rate) for number, rate in enumerate(run.rates)
        )
    return text + footer(result, width)


def _below(training: TrainingRuns) -> str:
    """What `+-` means in the table, and DDP's own cost, below an empty line."""
    lines = "".join(f"{line}\n" for line in (_meaning(training), _perfect(training)) if line)
    return f"\n{lines}" if lines else ""


def _unclear(result: TrainResult) -> str:
    """The method whose share of alone is the most uncertain, if too uncertain, and what to do."""
    training = result.training
    intervals = {}
    for name in unclear(training):
        interval = share_interval(training, name)
        if interval:
            intervals[name] = interval
    if not intervals:
        return ""
    worst = max(intervals, key=lambda name: intervals[name].high / intervals[name].low)
    lead, rounds = "rounds differ too much to compare", training.spec.rounds
    return unclear_text(lead, worst, intervals[worst], ALONE, result, rounds)


def _meaning(training: TrainingRuns) -> str:
    meaning = "" if training.spec.states else note(len(training.of(training.baseline)))
    if not meaning:
        return ""
    return f"{meaning}; after a rate it is 1.96 standard deviations of an iteration"


def _perfect(training: TrainingRuns) -> str:
    still, alone = training.silent_s(ALONE), training.step_s(ALONE)
    if not still or not alone:
        return ""
    runs = [run for run in training.of(ALONE) if run.silent_s]
    ratios = [median(run.steps_s) / median(run.silent_s) for run in runs]
    share = percent_plus_minus(alone / still, rounds.ratio_interval(ratios))
    return f"on a perfect network a step under DDP takes {1e3 * still:.2f} ms, {share} of alone"


def columns(result: TrainResult) -> list[Column]:
    """The columns, whose values take the name of a method."""
    training = result.training
    return [
        Column(title="method", value=str, left=True),
        Column(
            title=f"{training.unit}/s per {device(result)}",
            value=lambda name: text_or_unknown(training.rate(name), rate_text),
        ),
        Column(title="of alone", value=lambda name: _share(training, name)),
        Column(
            title="step ms",
            value=lambda name: text_or_unknown(
                training.step_s(name), lambda step: f"{1e3 * step:.2f}"
            ),
        ),
        Column(title="10 % - 90 %", value=lambda name: _tenths(training, name)),
        Column(
            title="exposed ms",
            value=lambda name: _part(
                name, training.exposed_s(name), parts(training, name).exposed_s
            ),
        ),
        Column(title="codec ms", value=lambda name: _codec(training, name)),
        Column(
            title="network ms",
            value=lambda name: _part(
                name, training.network_s(name), parts(training, name).network_s
            ),
        ),
        Column(title="MB counted", value=lambda name: _bytes(training, name, "counted")),
        Column(title="MB seen", value=lambda name: _bytes(training, name, "seen")),
    ]


def _tenths(training: TrainingRuns, name: str) -> str:
    steps = [step for run in training.of(name) for step in run.steps_s]
    tenths = quantiles(steps, n=10) if len(steps) > 1 else []
    return f"{1e3 * tenths[0]:.2f} - {1e3 * tenths[-1]:.2f}" if tenths else "-"


def _share(training: TrainingRuns, name: str) -> str:
    interval = share_interval(training, name) if name != ALONE else None
    return text_or_unknown(
        training.efficiency(name), lambda share: percent_plus_minus(share, interval)
    )


def _codec(training: TrainingRuns, name: str) -> str:
    if _has_no_hook(training, name):
        return "-"
    return _part(name, training.codec_s(name), parts(training, name).codec_s)


def _part(name: str, seconds: float | None, values: Sequence[float]) -> str:
    """Milliseconds of a step, with the interval over rounds.

    A value that rounds to 0.00, or a negative value whose interval includes 0, is shown as
    UNMEASURABLE.
    """
    if seconds is None or name == ALONE:
        return "-"
    interval = rounds.mean_interval(values)
    if 1e3 * seconds >= 0.005:
        return plus_minus(seconds, interval, 1e3, 2)
    if interval is None or interval.high >= 0:
        return UNMEASURABLE
    return plus_minus(seconds, interval, 1e3, 2)


def _has_no_hook(training: TrainingRuns, name: str) -> bool:
    """Whether a method is DDP without a hook, and so has no codec.

    Its steps over a perfect network are then those of ALONE.
    """
    silent = [step for run in training.of(name) for step in run.silent_s]
    return silent == [step for run in training.of(ALONE) for step in run.silent_s]


def _bytes(training: TrainingRuns, name: str, kind: str) -> str:
    """Megabytes a step that left a host; unknown on a single host, which nothing leaves."""
    values = [getattr(run, kind) for run in training.of(name)]
    known_values = [value for value in values if value is not None]
    if not known_values or training.hosts <= 1:
        return "-"
    return f"{sum(known_values) / len(known_values) / MB:.2f}"
