"""How `busbw run` samples: precise timing with its limits, or classic timing."""

from typing import TYPE_CHECKING, Any

import click

from busbw.cli.options.parameters import Seconds, ShareParam, is_given
from busbw.cli.options.shared import options
from busbw.core.errors import UsageError
from busbw.core.options import BY_FIELD, CPU_SWEEP_S, MAX_TIME_S

if TYPE_CHECKING:
    from busbw.core.sweep import Sampling

MAX_GROUPED = 64  # operations that are all enqueued while the queue is held
PRECISE_ONLY = ("precision", "confidence", "max_time", "tail", "repeats")
CLASSIC_ONLY = (
    "blocking",
    "cudagraph",
    "report_cputime",
    "average",
    "per_iter_timing",
    "per_iter_skip",
)
sampling_options = options(
    click.option(
        "--timing",
        type=click.Choice(["precise", "classic"]),
        default="precise",
        show_default=True,
        help=(
            "precise: medians with intervals, without launch cost; classic: a mean, as in"
            " nccl-tests"
        ),
    ),
    click.option(
        "--precision",
        type=ShareParam(0, 1),
        show_default="1% on GPUs, 10% on CPUs",
        help="how far the median's interval may reach to each side",
    ),
    click.option(
        "--confidence",
        type=ShareParam(0.5, 0.99999),
        default="99%",
        show_default=True,
        help="confidence level of that interval",
    ),
    click.option(
        "--max-time",
        type=Seconds(),
        default=MAX_TIME_S,
        show_default=True,
        help=(
            "target time per size and placement of sampling; a slow operation may take up to 2 s"
            f" longer; on CPUs all end after {CPU_SWEEP_S:g} s if neither this nor a size is given"
        ),
    ),
    click.option(
        "--tail",
        is_flag=True,
        help="also measure the 99th percentile; needs at least 846 samples at 99% confidence",
    ),
    click.option(
        "--repeats",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        help=(
            "times to run the sweep, each with new communicators (unlike --run-cycles) and sizes in"
            " random order"
        ),
    ),
)


def take_sampling(fields: dict[str, Any]) -> "Sampling | None":
    """Remove the timing options from `fields`, and return them; None for classic timing. UsageError
    for options of the other timing.
    """
    from busbw.core import sweep
    from busbw.stats.sampling import MAX_TAIL_SAMPLES

    chosen = {name: fields.pop(name) for name in PRECISE_ONLY}
    if fields.pop("timing") == "classic":
        for name in filter(is_given, PRECISE_ONLY):
            raise UsageError(
                f"--{name.replace('_', '-')} with --timing classic: only precise timing has it",
                "leave out one of them",
            )
        return None
    for name in filter(is_given, CLASSIC_ONLY):
        raise UsageError(
            f"{BY_FIELD[name].name(strict=True)}: only classic timing has it",
            "add --timing classic, or leave it out",
        )
    iters = fields["iters"] if is_given("iters") else 0
    if is_given("iters") and not 1 <= iters <= MAX_TAIL_SAMPLES:
        raise UsageError(
            f"--iters {iters}: precise timing takes 1 to {MAX_TAIL_SAMPLES}",
            "leave it out to take as many as needed",
        )
    if fields["agg_iters"] > MAX_GROUPED:
        raise UsageError(
            f"--agg-iters {fields['agg_iters']}: precise timing groups at most {MAX_GROUPED}",
            "add --timing classic, or give fewer",
        )
    precision, max_time_s = chosen.pop("precision") or 0.0, chosen.pop("max_time")
    return sweep.Sampling(precision=precision, max_time_s=max_time_s, fixed=iters, **chosen)
