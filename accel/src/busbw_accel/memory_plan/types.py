"""What `busbw plan gpt --memory-plan` predicts: does a training fit, and how long does a step take.
In bytes, seconds, and bytes per second.

`text` shows a plan of where to keep a model's states.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.shown import Shown
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text
from busbw_accel.memory_plan.gpt_shape import GptShape

GB, MS = 1e9, 1e3
DROP_ORDER = (
    "scores GB",
    "layer GB",
    "gradients GB",
    "activations GB",
    "states GB",
    "weights GB",
    "exposed ms",
    "fits",
    "host GB",
)
OPTIMIZER_CALL = "torch.optim.AdamW(model.parameters())"


class PlannedTraining(msgspec.Struct, frozen=True, kw_only=True):
    """The training to plan, on one GPU: `batch_size` samples of `sequence` tokens.

    `max_norm`: gradients are clipped to this norm.
    """

    shape: GptShape
    batch_size: int
    sequence: int
    recompute: bool
    max_norm: float | None = None

    @property
    def tokens(self) -> int:
        return self.batch_size * self.sequence

    @property
    def parameters(self) -> int:
        return self.shape.parameters(self.sequence)


class Compute(msgspec.Struct, frozen=True):
    """Seconds of the parts of a step: forward and backward of one layer, and of all that is outside
    of layers. The backward includes a recomputed forward.
    """

    layer_forward_s: float
    layer_backward_s: float
    root_forward_s: float
    root_backward_s: float


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU and its host."""

    gpu_memory: int
    host_memory: Annotated[int, Meta(description="what states may take")]
    process: Annotated[int, Meta(description="what a process with torch holds besides states")] = 0
    down: Annotated[float, Meta(description="rate of copies from the GPU")]
    up: Annotated[float, Meta(description="rate of copies to the GPU")]
    host_adam: Annotated[float, Meta(description="updates in parameters per second")]
    gpu_adam: Annotated[
        float,
        Meta(
            description="updates in parameters per second; 0: unknown, and counted as taking no"
            " time"
        ),
    ] = 0.0
    compute: Compute
    measured: Annotated[bool, Meta(description="on this machine, not stated by the user")] = False


class PeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a GPU at the peak, by what holds them, and bytes of the host."""

    weights: int
    states: int = 0
    gradients: int = 0
    activations: Annotated[int, Meta(description="those kept for backward")] = 0
    layer: Annotated[int, Meta(description="of one layer in backward")] = 0
    scores: Annotated[int, Meta(description="those of the output and the loss")] = 0
    host: int = 0

    @property
    def gpu(self) -> int:
        """The sum on the GPU."""
        kept = self.weights + self.states + self.gradients + self.activations
        return kept + self.layer + self.scores


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way to keep the states: its method for busbw train, what it needs, and a step.

    `lacks` says what does not fit, '' if all does.
    """

    method: str
    gpu_share: float
    memory: PeakMemory
    step_s: float
    exposed_s: float
    lacks: str = ""


class StatesPlan(
    Shown, msgspec.Struct, kw_only=True, tag="busbw.states-plan/1", tag_field="schema"
):
    """The plan. `compute_s` are the seconds of forward and backward without anything else."""

    training: PlannedTraining
    machine: Machine
    compute_s: float
    ways: list[Way]

    def recommended(self) -> Way | None:
        """Of the ways that fit the fastest; of ways within 1 % of it, the first listed."""
        fitting = [way for way in self.ways if not way.lacks]
        if not fitting:
            return None
        fastest = min(way.step_s for way in fitting)
        return next(way for way in fitting if way.step_s <= 1.01 * fastest)


def text(plan: StatesPlan, command: str, width: int | None = None) -> str:
    """The training, the machine, a line for each way, and what to run: `command` begins the
    line, without the methods; '' leaves it out.
    """
    table = aligned(columns(plan), plan.ways, width, DROP_ORDER)
    return f"{wrapped(header(plan), width)}\n{table}{advice(plan, command, width)}"


def code(way: Way, max_norm: float | None) -> str:
    """The line of Python that keeps the states in this way; '' for plain AdamW."""
    if way.method == "adamw":
        return ""
    share = f", gpu_share={way.gpu_share:g}" if way.gpu_share else ""
    streamed = ", stream_weights=True" if "stream_weights=1" in way.method else ""
    arguments = f"model, {OPTIMIZER_CALL}, max_norm={max_norm}{share}{streamed}"
    return f"optimizer = busbw_accel.offload({arguments})"


def header(plan: StatesPlan) -> str:
    training, machine = plan.training, plan.machine
    shape = training.shape
    activations = "recomputed" if training.recompute else "kept"
    source = "measured here" if machine.measured else "as given"
    memory = (
        f"{machine.gpu_memory / GB:.1f} GB of GPU memory, {machine.host_memory / GB:.1f} of host"
        " memory for states"
    )
    copies = f"copies {bandwidth_text(machine.down)} GB/s down, {bandwidth_text(machine.up)} up"
    updates = f"{machine.host_adam / 1e9:.2f}e9 updates/s on the CPU"
    if machine.gpu_adam:
        updates += f", {machine.gpu_adam / 1e9:.1f} on the GPU"
    return (
        f"# gpt: {training.parameters:,} parameters in {shape.layers} layers of {shape.width},"
        f" {training.tokens:,} tokens a step, activations {activations}\n"
        f"# {source}: {memory}; {copies}; {updates}\n"
        f"# forward and backward alone: {plan.compute_s * MS:.0f} ms\n"
    )


def columns(plan: StatesPlan) -> list[Column]:
    """The columns, whose values take a way."""

    def size(title: str, name: str) -> Column:
        return Column(title=title, value=lambda way: f"{getattr(way.memory, name) / GB:.1f}")

    return [
        Column(title="way", value=lambda way: way.method, left=True),
        Column(title="fits", value=lambda way: "no" if way.lacks else "yes"),
        size("GPU GB", "gpu"),
        Column(
            title="host GB",
            value=lambda way: f"{(way.memory.host + plan.machine.process) / GB:.1f}",
        ),
        Column(title="step ms", value=lambda way: f"{way.step_s * MS:.0f}"),
        Column(title="exposed ms", value=lambda way: f"{way.exposed_s * MS:.0f}"),
        size("weights GB", "weights"),
        size("states GB", "states"),
        size("gradients GB", "gradients"),
        size("activations GB", "activations"),
        size("layer GB", "layer"),
        size("scores GB", "scores"),
        Column(title="lacks", value=lambda way: way.lacks or "-", left=True),
    ]


def advice(plan: StatesPlan, command: str, width: int | None = None) -> str:
    """The recommended way and what to run, or what to do if nothing fits."""
    chosen = plan.recommended()
    if chosen is None:
        remedy = "take a smaller model or batch, more ranks, or a machine with more memory"
        return wrapped(f"\nnothing fits: {remedy}\n", width)
    rate = 100 * plan.compute_s / chosen.step_s
    sentence = (
        f"\nrecommended: {chosen.method}, {chosen.step_s * MS:.0f} ms a step,"
        f" {rate:.1f} % of the speed of compute alone\n"
    )
    line = code(chosen, plan.training.max_norm)
    if not line:
        line = "torch.optim.AdamW(..., fused=True) over fp32 weights; nothing else is needed"
    measure = f"  {command} --compare compute,{chosen.method}\n" if command else ""
    return f"{wrapped(sentence, width)}  {line}\n{measure}"
