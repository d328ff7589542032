"""Backends beside each other as text: a table for each mode, the choice by size, and findings."""

from busbw.backends.types import GRAPH, BackendsResult, BackendsRow, Choice
from busbw.backends.verdicts import IMPRECISE, Fastest, fastest, is_precise, ratio_text
from busbw.core.collectives import BY_NAME
from busbw.core.sizes import counted, format_size
from busbw.host.rails import NicChoice
from busbw.model.findings import all_findings
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import (
    bandwidth_text,
    finding_text,
    library,
    machine,
    micro_text,
    percent_text,
    run_problems,
)

REFUSED, WRONG = "-", "wrong"
ONE_RANK = "SKIP    one rank: no data crosses a link, so no backend is the fastest; run two or more"
OF_ENGINES = ("torch", "backend", "mpi4py")  # the device's name, or the engine, says it


def render(result: BackendsResult, width: int | None = None) -> str:
    """The whole result."""
    parts = [wrapped(f"{head(result)}\n", width)]
    for mode in result.modes():
        parts += rail_tables(result, mode, width) if result.rails else [table(result, mode, width)]
    below = [*foot(result), *(finding_text(one).rstrip() for one in all_findings(result))]
    parts.append(wrapped("".join(f"{line}\n" for line in below), width))
    return "\n".join(parts)


def head(result: BackendsResult) -> str:
    """`AllReduce of bfloat16, NVIDIA H200 x 2, ...`, with the libraries beside PyTorch."""
    collective = BY_NAME[result.spec.collective].title
    versions = result.library.versions.items()
    others = [f"{name} {version}" for name, version in versions if name not in OF_ENGINES]
    what = f"{collective} of {result.spec.datatype}"
    return ", ".join([what, machine(result), library(result), *others])


def mode_text(result: BackendsResult, mode: str) -> str:
    """`microseconds of a call in a CUDA graph of 16`, `GB/s of a transfer of 64 blocks`."""
    text = "microseconds of a call"
    if result.blocks:
        text = f"GB/s of a transfer of {counted(result.blocks, 'block')} of the size"
    if mode == GRAPH:
        text += f" in a CUDA graph of {result.in_graph}"
    return f"{text}, with copies into symmetric memory and back" if result.copies else text


def table(result: BackendsResult, mode: str, width: int | None) -> str:
    """A line for each size: the time of each backend, and the fastest."""
    title = wrapped(f"{mode_text(result, mode)}:\n", width)
    return f"{title}{aligned(columns(result, mode), result.rows, width)}"


def rail_tables(result: BackendsResult, mode: str, width: int | None) -> list[str]:
    """A table for each backend: a line for each rail, a column for each size, and the bound."""

    tables = []
    for backend in rail_backends(result):
        title = wrapped(f"{backend}, {mode_text(result, mode)}:\n", width)
        tables.append(title + aligned(rail_columns(result, backend, mode), result.rails, width))
    return tables


def rail_backends(result: BackendsResult) -> list[str]:
    """The backends without the names of rails."""
    return list(dict.fromkeys(name.partition("@")[0] for name in result.backends))


def rail_columns(result: BackendsResult, backend: str, mode: str) -> list[Column]:
    """The columns of a backend's table; `value` takes a rail."""

    def size_column(row: BackendsRow) -> Column:
        return Column(
            title=format_size(row.size_bytes),
            value=lambda rail: figure_text(result, row, f"{backend}@{rail.name}", mode),
        )

    unit = "" if result.blocks else "GB/s"  # the title says it of all figures
    return [
        Column(title="NIC", value=lambda rail: rail.name, left=True),
        *map(size_column, result.rows),
        Column(title="line rate", unit=unit, value=_line_rate),
    ]


def _line_rate(rail: NicChoice) -> str:
    return bandwidth_text(rail.rate) if rail.rate else "unknown"


def columns(result: BackendsResult, mode: str) -> list[Column]:
    """The columns of a mode's table; `value` takes a row."""

    def best(row: BackendsRow) -> str:
        return fastest_text(fastest(row, mode, result.default), result.default)

    backends = [
        Column(title=name, value=lambda row, name=name: figure_text(result, row, name, mode))
        for name in result.backends
    ]
    fastest_column = Column(title="fastest", value=best, left=True)
    return [
        Column(
            title="block" if result.blocks else "size",
            value=lambda row: format_size(row.size_bytes),
        ),
        *backends,
        *([fastest_column] if result.is_exchange else []),
    ]


def figure_text(result: BackendsResult, row: BackendsRow, backend: str, mode: str) -> str:
    """`12.34`, a time or the rate of blocks; `-` without one, `wrong` for wrong data."""
    time = row.of(backend, mode)
    if time is None or time.cell is None:
        return REFUSED
    if time.cell.wrong:
        return WRONG
    cell = time.cell
    text = bandwidth_text(cell.algbw) if result.blocks else micro_text(cell.time_s)
    return text if is_precise(cell) else f"~{text}"


def fastest_text(best: Fastest | None, default: str) -> str:
    """`one-shot 1.52x (1.48-1.57)`, or `nccl or two-shot` where it is not sure."""
    if best is None:
        return REFUSED
    if not best.sure:
        return " or ".join(
            sorted({best.backend, *best.alike}, key=lambda name: (name != default, name))
        )
    if best.low is None or best.high is None:  # it is the default, or that has no time
        return best.backend
    interval = f" ({ratio_text(best.low)}-{ratio_text(best.high)})"
    return f"{best.backend} {ratio_text(best.ratio)}x{interval}"


def foot(result: BackendsResult) -> list[str]:
    """The choice by size, what it reaches of the bound, and what was left out."""
    lines = legend(result)
    if result.is_exchange:
        lines += [
            f"{'in graphs' if mode == GRAPH else 'eager'}: {ranges(result, mode)}"
            for mode in result.modes()
        ]
    else:
        lines.append(ONE_RANK)
    lines += bound(result)
    lines += run_problems(result)
    lines += [f"left out: {name}: {reason}" for name, reason in result.left_out.items()]
    lines += refused(result)
    return lines


def bound(result: BackendsResult) -> list[str]:
    """What the fastest reaches at the largest size, beside what the links can carry."""
    if result.ideal is None or not result.rows:
        return []
    row = result.rows[-1]
    right = [time for time in row.times if time.cell and not time.cell.wrong]
    if not right:
        return []
    best = max(right, key=lambda time: time.cell.busbw if time.cell else 0.0)
    assert best.cell is not None
    return [
        f"at {format_size(row.size_bytes)} {best.backend} reaches"
        f" {bandwidth_text(best.cell.busbw)} GB/s busbw,"
        f" {percent_text(best.cell.busbw, result.ideal.busbw)} % of the bound of"
        f" {bandwidth_text(result.ideal.busbw)}: {result.ideal.why}"
    ]


def legend(result: BackendsResult) -> list[str]:
    """What the columns mean, where it is not said elsewhere."""
    lines = []
    if result.rows and len(result.backends) > 1 and result.is_exchange and not result.rails:
        lines.append(
            f"x: the time of {result.default} over that of the fastest, with its interval; `or`:"
            " they cannot be told apart"
        )
    cells = [time.cell for row in result.rows for time in row.times if time.cell]
    if not all(map(is_precise, cells)):
        lines.append(f"~: less precise than {IMPRECISE:.0%}, as beside other programs")
    return lines


def ranges(result: BackendsResult, mode: str) -> str:
    """`one-shot to 256 KiB, then nccl`."""
    found = [choice for choice in result.choices if choice.mode == mode]
    if not found:
        return "nothing was measured"
    *first, last = found
    texts = [f"{_chosen(choice, result)} to {format_size(choice.last_bytes)}" for choice in first]
    end = _chosen(last, result)
    return ", ".join([*texts, f"then {end}" if first else f"{end} at all sizes"])


def _chosen(choice: Choice, result: BackendsResult) -> str:
    """`nccl (not decided)`, where another one may be as fast; `mpi (imprecise)`, where it is faster
    than the default, by times that are imprecise.
    """
    if choice.sure:
        return choice.backend
    is_faster = choice.backend != result.default and choice.ratio is not None
    return f"{choice.backend} ({'imprecise' if is_faster else 'not decided'})"


def refused(result: BackendsResult) -> list[str]:
    """Backends that had no time at some sizes, with the first reason."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for row in result.rows:
        for time in row.times:
            if time.why_not:
                reasons.setdefault((time.backend, time.why_not), []).append(row.size_bytes)
    return [
        f"{backend}: {counted(len(set(sizes)), 'size')} from {format_size(min(sizes))}: {why}"
        for (backend, why), sizes in reasons.items()
    ]
