"""The steps of an inference server as text: a table of phases, and one of their communication."""

from collections.abc import Callable
from typing import NamedTuple

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.pattern import GpuTime
from busbw.core.serving import PhaseSteps, ServingSteps, StepCalls
from busbw.core.sizes import counted, format_size
from busbw.ui.columns import Column, aligned, cut_in_middle, wrapped
from busbw.ui.number_formats import percent_text, time_text

DROP_ORDER = ("duration",)
CALLS_DROP_ORDER = ("bytes",)
_KERNEL_WIDTH = 34


class PhaseCalls(NamedTuple):
    """A kind of kernels in the steps of a phase."""

    phase: str
    calls: StepCalls


def _time(field: str) -> Callable[[PhaseSteps], str]:
    return lambda steps: time_text(getattr(steps, field).median * 1e-6)


def _share(steps: PhaseSteps) -> str:
    """`19.7 (18.9 to 21.0)`: the median and the quartiles, in percent."""
    middle, low, high = (
        percent_text(value, 1.0)
        for value in (steps.share.median, steps.share.low, steps.share.high)
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def _function(line: PhaseCalls) -> str:
    collective = COLLECTIVES.get(line.calls.function)
    name = collective.name if collective else line.calls.function
    return name or cut_in_middle(line.calls.kernel, _KERNEL_WIDTH)


PHASES: tuple[Column, ...] = (
    Column(title="phase", value=lambda steps: steps.phase, left=True),
    Column(title="steps", value=lambda steps: steps.steps),
    Column(title="duration", value=_time("duration_us")),
    Column(title="GPU time", value=_time("kernels_us")),
    Column(title="communication", value=_time("communication_us")),
    Column(title="exposed", value=_time("exposed_us")),
    Column(title="share", unit="%", value=_share, left=True),
)
CALLS: tuple[Column, ...] = (
    Column(title="phase", value=lambda line: line.phase, left=True),
    Column(title="function", value=_function, left=True),
    Column(title="library", value=lambda line: line.calls.library, left=True),
    Column(
        title="bytes",
        value=lambda line: "-" if line.calls.bytes is None else format_size(line.calls.bytes),
    ),
    Column(title="a step", value=lambda line: f"{line.calls.per_step:.4g}"),
    Column(title="median", value=lambda line: time_text(line.calls.median_us * 1e-6)),
)


def table(serving: ServingSteps, gpu_time: GpuTime | None, width: int) -> str:
    """The phases, their communication, and what is outside of steps; at most `width` wide."""
    phases = aligned(PHASES, serving.phases, width, DROP_ORDER)
    lines = call_lines(serving)
    calls = f"\n{aligned(CALLS, lines, width, CALLS_DROP_ORDER)}" if lines else ""
    above, below = wrapped(head(serving), width), wrapped(foot(serving, gpu_time), width)
    return f"{above}\n{phases}{calls}{below}"


def head(serving: ServingSteps) -> str:
    """What the tables show."""
    gpus = f" on {counted(serving.gpus, 'GPU')}, each counted on each" if serving.gpus > 1 else ""
    return (
        f"steps of {serving.server}{gpus}: medians; share is communication's part of a step's GPU"
        " time, with its quartiles\n"
    )


def call_lines(serving: ServingSteps) -> list[PhaseCalls]:
    """The kinds of communication of each phase, those that take longest first."""
    return [PhaseCalls(steps.phase, calls) for steps in serving.phases for calls in steps.calls]


def foot(serving: ServingSteps, gpu_time: GpuTime | None) -> str:
    """How much GPU time no step has; '' for none."""
    if gpu_time is None or not serving.outside_us:
        return ""
    share = percent_text(serving.outside_us, gpu_time.kernels_us)
    sent = time_text(serving.communication_outside_us * 1e-6)
    part = f", {sent} of it communication" if serving.communication_outside_us else ""
    return f"outside of steps: {share} % of all GPU time{part}\n"
