"""A training benchmark for people: the lines that Horovod's benchmark prints, and below them a table of all methods."""

from statistics import quantiles

from busbw.core.result import Outcome, TrainResult
from busbw.core.training import ALONE, Training
from busbw.views import findings
from busbw.views.words import library, machine

COLUMNS = (
    "method",
    "{unit}/s per {device}",
    "of alone",
    "step ms",
    "10 % - 90 %",
    "exposed ms",
    "codec ms",
    "network ms",
    "MB counted",
    "MB seen",
)
MB = 1e6


def device(result: Outcome) -> str:
    """What a rank runs on, in Horovod's word."""
    return "GPU" if any(one.bus for one in result.world.devices) else "CPU"


def header(result: TrainResult) -> str:
    """What trains where."""
    training = result.training
    spec = training.spec
    sequence = f" of {spec.sequence} tokens" if training.unit == "seq" else ""
    return (
        f"# {spec.model}: {training.parameters:,} parameters, {training.gradients / MB:.1f} MB of gradients a step\n"
        f"# {machine(result)}, {library(result)}\n"
        f"# batch {spec.batch_size}{sequence} a rank, {spec.precision}, buckets of {spec.bucket_mb:g} MB; "
        f"{spec.iters} iterations of {spec.batches} steps after {spec.warmup} of warm-up\n"
    )


def iteration(result: TrainResult, method: str, number: int, rate: float) -> str:
    """One line as it comes, below the method's name where that begins."""
    training = result.training
    heading = f"\n{method}\n" if number == 0 else ""
    return f"{heading}Iter #{number}: {rate:.1f} {training.unit}/sec per {device(result)}\n"


def method_end(result: TrainResult, method: str) -> str:
    """Horovod's two lines for all that a method has run so far."""
    training, kind, ranks = result.training, device(result), result.world.ranks
    rate = training.rate(method)
    if rate is None:
        return ""
    return (
        f"{training.unit.capitalize()}/sec per {kind}: {_rate_words(rate)}\n"
        f"Total {training.unit}/sec on {ranks} {kind}(s): {_rate_words(rate, ranks)}\n"
    )


def _rate_words(rate: tuple[float, float | None], ranks: int = 1) -> str:
    """`125.8 +-0.8`; one iteration alone has no spread."""
    mean, spread = rate
    return f"{ranks * mean:.1f}" + (f" +-{ranks * spread:.1f}" if spread is not None else "")


def footer(result: TrainResult) -> str:
    """The table, and what went wrong."""
    training = result.training
    names = list(dict.fromkeys(run.method for run in training.runs))
    titles = [title.format(unit=training.unit, device=device(result)) for title in COLUMNS]
    rows = [titles, *([name, *_figures(training, name)] for name in names)] if names else []
    widths = [max(len(row[column]) for row in rows) for column in range(len(titles))] if rows else []
    text = "\n" if rows else ""
    for row in rows:
        first, *rest = (
            word.ljust(width) if not place else word.rjust(width) for place, (word, width) in enumerate(zip(row, widths, strict=True))
        )
        text += "  ".join([first, *rest]).rstrip() + "\n"
    text += _perfect(training)
    text += "".join(f"error: {error}\n" for error in result.errors)
    return text + "".join(findings.words(finding) for finding in result.findings)


def render_all(result: TrainResult) -> str:
    """The whole text of a result that was kept."""
    training, text = result.training, header(result)
    for run in training.runs:
        text += "".join(iteration(result, run.method, number, rate) for number, rate in enumerate(run.rates))
    return text + footer(result)


def _perfect(training: Training) -> str:
    still, alone = training.silent_s(ALONE), training.step_s(ALONE)
    if not still or not alone:
        return ""
    return f"\non a perfect network a step under DDP takes {1e3 * still:.2f} ms, {100 * alone / still:.1f} % of alone\n"


def _figures(training: Training, name: str) -> list[str]:
    rate, step, share = training.rate(name), training.step_s(name), training.efficiency(name)
    parts = (training.exposed_s(name), training.codec_s(name), training.network_s(name))
    steps = [one for run in training.of(name) for one in run.steps_s]
    tenths = quantiles(steps, n=10) if len(steps) > 1 else []
    return [
        _rate_words(rate) if rate else "-",
        f"{100 * share:.1f} %" if share is not None else "-",
        f"{1e3 * step:.2f}" if step is not None else "-",
        f"{1e3 * tenths[0]:.2f} - {1e3 * tenths[-1]:.2f}" if tenths else "-",
        *(f"{1e3 * part:.2f}" if part is not None and name != ALONE else "-" for part in parts),
        *(_bytes(training, name, kind) for kind in ("counted", "seen")),
    ]


def _bytes(training: Training, name: str, kind: str) -> str:
    values = [value for run in training.of(name) if (value := getattr(run, kind)) is not None]
    return f"{sum(values) / len(values) / MB:.2f}" if values else "-"
