"""A plan of where to keep a model's states, for people."""

from busbw.model.states.types import StatesPlan, Way
from busbw.ui.columns import Column, aligned, wrapped

GB, MS = 1e9, 1e3
DROP_ORDER = ("scores GB", "layer GB", "gradients GB", "activations GB", "states GB", "weights GB")
OPTIMIZER = "torch.optim.AdamW(model.parameters())"


def text(plan: StatesPlan, command: str, width: int | None = None) -> str:
    """The training, the machine, a line for each way, and what to run: `command` begins the
    line, without the methods; '' leaves it out.
    """
    return (
        wrapped(_header(plan), width)
        + "\n"
        + aligned(_columns(plan), plan.ways, width, DROP_ORDER)
        + _advice(plan, command, width)
    )


def code(way: Way, max_norm: float | None) -> str:
    """The line of Python that does it; '' for plain AdamW."""
    if way.method == "adamw":
        return ""
    share = f", gpu_share={way.gpu_share:g}" if way.gpu_share else ""
    streamed = ", stream_weights=True" if "stream_weights=1" in way.method else ""
    return (
        f"optimizer = busbw.accel.offload(model, {OPTIMIZER}, max_norm={max_norm}{share}{streamed})"
    )


def _header(plan: StatesPlan) -> str:
    training, machine = plan.training, plan.machine
    shape = training.shape
    again = "recomputed" if training.recompute else "kept"
    source = "measured here" if machine.measured else "as given"
    updates = f", {machine.gpu_adam / 1e9:.1f} on the GPU" if machine.gpu_adam else ""
    host = f"{machine.host_memory / GB:.1f} of host memory for states"
    host_rate = f"{machine.host_adam / 1e9:.2f}e9 updates/s on the CPU"
    return (
        f"# gpt: {training.parameters:,} parameters in {shape.layers} layers of {shape.width},"
        f" {training.tokens:,} tokens a step, activations {again}\n"
        f"# {source}:"
        f" {machine.gpu_memory / GB:.1f} GB of GPU memory, {host}; copies {machine.down / GB:.1f}"
        f" GB/s down, {machine.up / GB:.1f} up; {host_rate}{updates}\n"
        f"# forward and backward alone:"
        f" {plan.compute_s * MS:.0f} ms\n"
    )


def _columns(plan: StatesPlan) -> list[Column]:
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


def _advice(plan: StatesPlan, command: str, width: int | None) -> str:
    chosen = plan.recommended()
    if chosen is None:
        return wrapped(
            "\n"
            "nothing fits: take a smaller model or batch, more ranks, or a machine with more"
            " memory\n",
            width,
        )
    rate = 100 * plan.compute_s / chosen.step_s
    saying = (
        f"\n"
        f"recommended: {chosen.method}, {chosen.step_s * MS:.0f} ms a step, {rate:.1f} % of the"
        " speed of compute alone\n"
    )
    line = code(chosen, plan.training.max_norm)
    shown = (
        f"  {line}\n"
        if line
        else "  torch.optim.AdamW(..., fused=True) over fp32 weights; nothing else is needed\n"
    )
    measure = f"  {command} --compare compute,{chosen.method}\n" if command else ""
    return wrapped(saying, width) + shown + measure
