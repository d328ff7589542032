"""A pattern as text: the rows that took most time or moved most bytes, then totals, and what is
missing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.pattern import (
    AROUND_CALL,
    EVENTS,
    KERNEL,
    Comm,
    GpuTime,
    Header,
    Pattern,
    PatternRow,
    Times,
    TrainingSteps,
)
from busbw.core.pattern_weights import average, coverage, parts, weights
from busbw.core.sizes import counted, format_size
from busbw.pattern import serving_text
from busbw.pattern.lateness import text as late
from busbw.pattern.replay.text import ROWS, hidden_rows_line
from busbw.ui.columns import Column, aligned, cut_in_middle, wrapped
from busbw.ui.number_formats import peers_text, percent_text, text_or_unknown, time_text

DEFAULT_WIDTH = 80
_KERNEL_WIDTH = 34
_UNKNOWN = Comm(-1, 0)  # of kernels whose calls are not recorded
DROP_ORDER = (
    "least",
    "protocol",
    "group",
    "predicted",
    "op",
    "algorithm",
    "peers",
    "type",
    "ranks",
    "median",
)
_OPTIONAL = {
    "type",
    "op",
    "group",
    "algorithm",
    "protocol",
    "peers",
    "predicted",
    "median",
    "least",
    "kernel",
}


CLOCKS = {
    EVENTS: "CUDA events around the launch",
    AROUND_CALL: "CUDA events around the call",
    KERNEL: "NCCL's kernel events",
}


@dataclass(frozen=True, slots=True)
class PatternLine:
    """A row with its times, and its weight in the total of all rows.

    `kernel` names the kernels of a row whose calls are not recorded.
    """

    comm: Comm
    row: PatternRow
    times: Times | None
    weight: float
    total: float
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class _SortKey:
    """What the table is sorted by: a kind of time, or bytes.

    `meaning` continues the text "average of all ranks".
    """

    name: str
    field: str
    meaning: str


KINDS = (
    _SortKey("GPU time", "gpu_us", ", a call's being the shortest duration on the GPU of any rank"),
    _SortKey("CPU time", "cpu_us", ", by the host's clock"),
    _SortKey("bytes", "", "; the calls are not timed"),
)


def kind(pattern: Pattern) -> _SortKey:
    """The GPU's time if any call has one, else the host's, else bytes."""
    if pattern.header.gpu_time and pattern.header.gpu_time.unlisted:
        return KINDS[0]
    for time in KINDS:
        if time.field and any(getattr(row, time.field) for row in pattern.rows):
            return time
    return KINDS[-1]


def function(line: PatternLine) -> str:
    """busbw's name of the collective, or send or recv."""
    collective = COLLECTIVES.get(line.row.function)
    return (collective.name if collective else line.row.function) or "-"


def size_text(line: PatternLine) -> str:
    """The bytes of a call; those of kernels may be unknown."""
    return "-" if line.kernel and not line.row.bytes else format_size(line.row.bytes)


def _time(field: str) -> Callable[[PatternLine], str]:
    return lambda line: "-" if line.times is None else time_text(getattr(line.times, field) * 1e-6)


COLUMNS: tuple[Column, ...] = (
    Column(title="function", value=function, left=True),
    Column(
        title="kernel",
        value=lambda line: cut_in_middle(line.kernel, _KERNEL_WIDTH) or "-",
        left=True,
    ),
    Column(title="bytes", value=size_text),
    Column(title="type", value=lambda line: line.row.dtype or "-", left=True),
    Column(title="op", value=lambda line: line.row.op or "-", left=True),
    Column(title="peers", value=lambda line: peers_text(line.row), left=True),
    Column(title="ranks", value=lambda line: line.comm.ranks or "-"),
    Column(title="group", value=lambda line: line.comm.name[:12] or "-", left=True),
    Column(title="algorithm", value=lambda line: line.row.algorithm or "-", left=True),
    Column(title="protocol", value=lambda line: line.row.protocol or "-", left=True),
    Column(title="calls", value=lambda line: line.row.calls),
    Column(
        title="predicted",
        value=lambda line: text_or_unknown(
            line.row.predicted_us, lambda time: time_text(time * 1e-6)
        ),
    ),
    Column(title="least", value=_time("least")),
    Column(title="median", value=_time("median")),
    Column(title="share", unit="%", value=lambda line: percent_text(line.weight, line.total)),
)


def table(pattern: Pattern, width: int | None = None, row_limit: int = ROWS) -> str:
    """The `row_limit` rows with the largest share of time, totals, and what the record lacks.

    At most `width` characters wide, 80 without one.
    """
    width = width or DEFAULT_WIDTH
    lines = sorted_lines(pattern)
    shown = shown_columns(lines)
    hidden = lines[row_limit:]
    hidden_line = hidden_rows_line(
        hidden, sum(line.weight for line in hidden), sum(line.weight for line in lines)
    )
    table = aligned(shown, lines[:row_limit], width, DROP_ORDER)
    below = wrapped(foot(pattern), width)
    serving = pattern.header.serving
    above = wrapped(overview(pattern), width)
    if serving:
        above += serving_text.table(serving, pattern.header.gpu_time, width) + "\n"
    above += wrapped(order(pattern), width)
    if pattern.header.gpu_time and not lines:
        return above + below
    return f"{above}\n{table}{hidden_line}\n{below}"


def overview(pattern: Pattern) -> str:
    """Where the pattern is from, and what part of the GPUs' time is communication."""
    return f"{_title(pattern)}\n{_gpu_time(pattern.header.gpu_time)}"


def order(pattern: Pattern) -> str:
    """What the rows are sorted by; '' if there are none."""
    sort_kind = kind(pattern)
    if not pattern.rows and sort_kind is not KINDS[0]:
        return ""
    meaning = "" if sort_kind.field and len(pattern.header.ranks) == 1 else sort_kind.meaning
    shared = f"communication's {sort_kind.name}" if sort_kind is KINDS[0] else sort_kind.name
    return f"sorted by share of {shared} ({average(pattern)}{meaning})\n"


def _gpu_time(gpu_time: GpuTime | None) -> str:
    """What part of the GPUs' time is communication."""
    if gpu_time is None:
        return ""
    whole_us, part_us = gpu_time.kernels_us, gpu_time.communication_us
    if not part_us:
        return (
            f"communication takes none of all GPU time, {time_text(whole_us * 1e-6)} in kernels\n"
        )
    share = percent_text(part_us, whole_us)
    gpus = f" of {counted(gpu_time.gpus, 'GPU')}" if gpu_time.gpus > 1 else ""
    part, whole = time_text(part_us * 1e-6), time_text(whole_us * 1e-6)
    return (
        f"communication takes {share} % of all GPU time: {part} of {whole} in kernels{gpus},"
        f" {time_text(gpu_time.exposed_us * 1e-6)} of it while no other kernel ran\n"
    )


def foot(pattern: Pattern) -> str:
    """The totals, and what the record lacks."""
    return _totals(pattern, kind(pattern)) + _remarks(pattern)


def sorted_lines(pattern: Pattern) -> list[PatternLine]:
    """The rows, that with the largest share first."""
    return sorted(_lines(pattern, kind(pattern)), key=lambda line: -line.weight)


def shown_columns(lines: Sequence[PatternLine]) -> list[Column]:
    """The columns that are always shown, and those with a value in any line."""
    return [
        column
        for column in COLUMNS
        if column.title not in _OPTIONAL or any(column.text(line) != "-" for line in lines)
    ]


def _lines(pattern: Pattern, sort_kind: _SortKey) -> list[PatternLine]:
    row_weights = weights(pattern) if sort_kind.field else parts(pattern)
    amounts = [
        _amount(row, sort_kind) * weight
        for row, weight in zip(pattern.rows, row_weights, strict=True)
    ]
    gpu_time = pattern.header.gpu_time if sort_kind is KINDS[0] else None
    total = sum(amounts) + (gpu_time.unlisted_us / gpu_time.gpus if gpu_time else 0.0)
    lines = []
    for row, amount in zip(pattern.rows, amounts, strict=True):
        times = getattr(row, sort_kind.field) if sort_kind.field else None
        lines.append(PatternLine(pattern.comm(row), row, times, amount, total))
    return lines + (_kernel_lines(gpu_time, total) if gpu_time else [])


def _kernel_lines(gpu_time: GpuTime, total: float) -> list[PatternLine]:
    """Communication whose calls are not recorded, by kernel."""
    lines = []
    for kernels in gpu_time.unlisted:
        row = PatternRow(
            -1, -1, kernels.function, kernels.bytes or 0, kernels.gpu_us.n, dtype=kernels.dtype
        )
        weight = kernels.gpu_us.total / gpu_time.gpus
        lines.append(PatternLine(_UNKNOWN, row, kernels.gpu_us, weight, total, kernels.name))
    return lines


def _amount(row: PatternRow, sort_kind: _SortKey) -> float:
    """Microseconds of all calls of a row, also of those that were not timed; or bytes."""
    if not sort_kind.field:
        return float(row.bytes * row.calls)
    times = getattr(row, sort_kind.field)
    return times.total * row.calls / times.n if times else 0.0


def _title(pattern: Pattern) -> str:
    header = pattern.header
    facts = [
        f"from {header.source}" if header.source else "",
        counted(header.world, "rank") if header.world else "",
        counted(len(header.hosts), "host") if header.hosts else "",
        f"NCCL {header.nccl}" if header.nccl else "",
    ]
    return ", ".join(filter(None, facts)) or "from an unknown source"


def _totals(pattern: Pattern, sort_kind: _SortKey) -> str:
    if pattern.header.gpu_time and not pattern.rows:
        return ""
    calls = sum(row.calls for row in pattern.rows)
    size = sum(row.calls * row.bytes for row in pattern.rows)
    rows = counted(len(pattern.rows), "row")
    comms = counted(len(pattern.comms), "communicator")
    text = f"{counted(calls, 'call')} in {rows} over {comms}, {format_size(size)}"
    if sort_kind.field:
        total_us = 0.0
        timed = 0
        for row, weight in zip(pattern.rows, weights(pattern), strict=True):
            times = getattr(row, sort_kind.field)
            if times:
                total_us += times.total * weight
                timed += times.n
        text += f"; {sort_kind.name} {time_text(total_us * 1e-6)}"
        if timed < calls:
            text += f" of {counted(timed, 'call')}"
    if pattern.header.seconds:
        text += f", over {time_text(pattern.header.seconds)}"
    skews = [call.skew_us for call in pattern.calls if call.skew_us is not None]
    if skews:
        total, largest = time_text(sum(skews) * 1e-6), time_text(max(skews) * 1e-6)
        text += f"\nskew between ranks: {total} in total, {largest} at most"
    header = pattern.header
    found = late.text(header.lateness)
    return f"{text}\n{_clocks(header)}{_step(header.training)}{found}"


def _clocks(header: Header) -> str:
    """By which clocks the GPU's times are."""
    if not header.clocks:
        return ""
    texts = [
        f"{name}, {counted(header.clocks[clock], 'call')}"
        for clock, name in CLOCKS.items()
        if clock in header.clocks
    ]
    return f"timed by {'; '.join(texts)}\n"


def _step(training: TrainingSteps | None) -> str:
    """How long the steps of DistributedDataParallel took, for comparison with another capture."""
    if training is None or training.step_s is None:
        return ""
    steps = counted(len(training.counted()), "step")
    text = f"a step took {time_text(training.step_s)}, the median of {steps}"
    if training.wait_s is not None:
        text += f"; {time_text(training.wait_s)} of it waited for gradients"
    return text + "\n"


def _remarks(pattern: Pattern) -> str:
    header = pattern.header
    lines = []
    if pattern.rows and not pattern.ordered:
        lines.append("the order of the calls is unknown")
    if header.dropped:
        lines.append(f"{counted(header.dropped, 'call')} dropped by what recorded them")
    if header.skipped:
        lines.append(f"{counted(header.skipped, 'record')} could not be read")
    lines += [f"note: {note}" for note in [*header.notes, *coverage(pattern)]]
    return "".join(f"{line}\n" for line in lines)
