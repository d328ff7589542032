"""The text of a comparison of ways to keep a model's states: a header, and a line for each way."""

from statistics import median

from busbw.stats.intervals import interval
from busbw.ui.columns import Column, fitting, line, wrapped
from busbw.ui.number_formats import library, machine
from busbw_accel.train.kinds import TrainResult
from busbw_accel.train.types import COMPUTE, LargestModel, TrainingRuns, TrainRun

GB = 1e9
METHOD = 14  # characters
CONFIDENCE = 0.95
DROP_ORDER = (
    "reserved GB",
    "pinned GB",
    "95 % interval",
    "start s",
    "up B/P",
    "down B/P",
    "waited ms",
    "up ms",
    "down ms",
    "loss",
    "update ms",
    "host GB",
    "exposed ms",
)


def header(result: TrainResult, width: int | None = None) -> str:
    """Model, machine and settings, and the titles of what follows."""
    shown = columns(result.training, width)
    titles = line(shown, [column.title for column in shown])
    return f"{wrapped(described(result), width)}\n{titles}"


def described(result: TrainResult) -> str:
    training = result.training
    spec, states = training.spec, training.spec.states
    assert states is not None
    shape = states.shape
    capped = f", at most {states.gpu_memory / GB:.1f} GB of the GPU" if states.gpu_memory else ""
    activations = "activations recomputed" if states.recompute else "activations kept"
    sharded = f", sharded over {result.world.ranks} ranks" if result.world.ranks > 1 else ""
    return (
        f"# gpt: {training.parameters:,} parameters in {shape.layers} layers of {shape.width},"
        f" vocabulary of {shape.vocabulary:,}\n"
        f"# {machine(result)}, {library(result)}\n"
        f"# batch {spec.batch_size} x {spec.sequence} ="
        f" {spec.batch_size * spec.sequence:,} tokens a step and rank, bf16,"
        f" {activations}{sharded}{capped};"
        f" {spec.iters * spec.steps} steps after {spec.warmup} of warm-up\n"
    )


def row(result: TrainResult, run: TrainRun, width: int | None = None) -> str:
    """One method, or why it has no figures."""
    shown = columns(result.training, width)
    if run.failed:
        return wrapped(f"{shown[0].pad(run.method, shown[0].width)}  {run.failed}\n", width)
    return line(shown, [column.text(run) for column in shown])


def footer(result: TrainResult, width: int | None = None) -> str:
    """The largest models, and errors."""
    text = "".join(map(_largest, result.training.largest))
    if text:
        text = f"\n{text}"
    text += "".join(f"error: {error}\n" for error in result.errors)
    return wrapped(text, width)


def render_all(result: TrainResult, width: int | None = None) -> str:
    """The whole text of a stored result."""
    rows = "".join(row(result, run, width) for run in result.training.runs)
    return header(result, width) + rows + footer(result, width)


def markdown(result: TrainResult) -> str:
    training = result.training
    shown = columns(training, None)
    lines = [
        [column.title for column in shown],
        ["---" if column.left else "---:" for column in shown],
    ]
    for run in training.runs:
        if run.failed:
            lines.append([run.method, run.failed, *[""] * (len(shown) - 2)])
        else:
            lines.append([column.text(run) for column in shown])
    return "".join(f"| {' | '.join(texts)} |\n" for texts in lines)


def columns(training: TrainingRuns, width: int | None) -> list[Column]:
    """The columns, whose values take a run.

    The methods are known before the first run, so widths are too.
    """
    methods = max([METHOD, *map(len, training.spec.methods)])
    columns = [
        Column(title="method", value=lambda run: run.method, width=methods, left=True),
        Column(title="step ms", value=lambda run: f"{1e3 * median(run.steps_s):.1f}", width=9),
        Column(title="95 % interval", value=_interval, width=19),
        Column(title="tokens/s", value=lambda run: f"{run.rate:.0f}", width=8),
        Column(title="exposed ms", value=lambda run: _exposed(training, run), width=10),
        Column(title="GPU GB", value=lambda run: f"{run.states.gpu_bytes / GB:.2f}", width=7),
        Column(
            title="reserved GB", value=lambda run: f"{run.states.gpu_reserved / GB:.2f}", width=11
        ),
        Column(title="host GB", value=lambda run: f"{run.states.host_bytes / GB:.2f}", width=7),
        Column(title="pinned GB", value=lambda run: f"{run.states.pinned / GB:.2f}", width=9),
        Column(title="start s", value=lambda run: f"{run.states.start_s:.1f}", width=7),
        Column(
            title="down B/P",
            value=lambda run: _of_parameter(training, run.states.down_bytes),
            width=8,
        ),
        Column(
            title="up B/P", value=lambda run: _of_parameter(training, run.states.up_bytes), width=6
        ),
        Column(title="down ms", value=lambda run: _ms(run.states.down_s), width=8),
        Column(title="update ms", value=lambda run: _ms(run.states.update_s), width=9),
        Column(title="up ms", value=lambda run: _ms(run.states.up_s), width=8),
        Column(title="waited ms", value=lambda run: _ms(run.states.waited_s), width=9),
        Column(title="loss", value=lambda run: f"{run.loss:.4f}", width=8),
    ]
    widths = [column.width for column in columns]
    return [columns[at] for at in fitting(columns, widths, width, DROP_ORDER)]


def _interval(run: TrainRun) -> str:
    bounds = interval(run.steps_s, CONFIDENCE)
    if not bounds:
        return "-"
    low, high = bounds
    return f"{1e3 * low:.1f} - {1e3 * high:.1f}"


def _exposed(training: TrainingRuns, run: TrainRun) -> str:
    compute_s = training.step_s(COMPUTE)
    if compute_s is None or run.method == COMPUTE:
        return "-"
    return f"{1e3 * (median(run.steps_s) - compute_s):+.1f}"


def _of_parameter(training: TrainingRuns, nbytes: float | None) -> str:
    return "-" if nbytes is None else f"{nbytes / training.parameters:.2f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.1f}"


def _largest(largest: LargestModel) -> str:
    stopped = largest.reason
    if largest.refused:
        stopped = f"{largest.refused / 1e9:.2f}B did not train: {stopped}"
    if largest.shape is None:
        return f"{largest.method}: no model trained; {stopped}\n"
    return (
        f"{largest.method}: the largest has {largest.parameters / 1e9:.2f}B parameters in"
        f" {largest.shape.layers} layers; {stopped}\n"
    )
