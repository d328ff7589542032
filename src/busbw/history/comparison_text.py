"""A comparison as text, Markdown and JSON: warnings and the summary first, then every cell, then
what the verdicts rest on.

All views and the HTML report share the sentences.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from busbw.core import json_codec
from busbw.core.cells import CellKey
from busbw.core.collectives import BY_NAME
from busbw.core.comparison import ComparedCell, ComparedSide, Comparison, ComparisonVerdict
from busbw.core.sizes import counted, format_size
from busbw.measure.formats.markdown import plain, table_head, table_line
from busbw.stats.judging import MEANS_S, MEANS_SHARE
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.junit import ERROR, FAILURE, SKIPPED, Case
from busbw.ui.junit import junit as junit_xml
from busbw.ui.number_formats import nccl_version_text, percent, text_or_unknown, time_text

METHODS = {
    "samples": "samples of one run a side and what equal runs differ by",
    "runs": "permutation of whole runs",
    "spread": "the spread of whole runs (Student's t)",
    "means": (
        "single means, which cannot be tested: slower and faster are differences of more than "
        f"{MEANS_S * 1e6:.0f} us plus {100 * MEANS_SHARE:.0f} %, beyond what such means vary by"
    ),
}
BOLD = {
    verdict: f"**{verdict.value}**"
    for verdict in (ComparisonVerdict.SLOWER, ComparisonVerdict.FASTER)
}
DROP_ORDER = ("interval", "time A", "time B")
ONLY_WHERE_CELLS_DIFFER = {"type", "op", "root", "cycle"}


def ratio_text(ratio: float | None) -> str:
    """`1.031x`, `53.1x`, `8300x`, `0.00012x`: four digits from 0.1 on, two below; `-`: unknown."""
    if ratio is None or not math.isfinite(ratio):
        return "-"
    if ratio < 1e-9:
        return "<0.000000001x"
    if ratio < 0.1:
        two_digits = float(f"{ratio:.2g}")
        return f"{two_digits:.12f}".rstrip("0").rstrip(".") + "x"
    if ratio < 9.9995:
        return f"{ratio:.3f}x"
    if ratio < 999.95:
        return f"{ratio:.1f}x"
    four_digits = float(f"{ratio:.4g}")
    return f"{four_digits:.0f}x"


def interval_text(cell: ComparedCell) -> str:
    """`0.980 to 1.020`; `-` where it is unknown."""
    if cell.low is None or cell.high is None:
        return "-"
    return f"{ratio_text(cell.low)[:-1]} to {ratio_text(cell.high)[:-1]}"


# The value of each column takes a ComparedCell.
COLUMNS: tuple[Column, ...] = (
    Column(title="size", value=lambda cell: format_size(cell.key.size_bytes)),
    Column(title="type", value=lambda cell: cell.key.dtype),
    Column(title="op", value=lambda cell: cell.key.op),
    Column(title="root", value=lambda cell: cell.key.root),
    Column(title="cycle", value=lambda cell: cell.key.cycle),
    Column(title="placement", value=lambda cell: placement(cell.key), left=True),
    Column(title="time A", value=lambda cell: text_or_unknown(cell.a_s, time_text)),
    Column(title="time B", value=lambda cell: text_or_unknown(cell.b_s, time_text)),
    Column(title="B / A", value=lambda cell: ratio_text(cell.ratio)),
    Column(title="interval", value=interval_text, left=True),
    Column(title="verdict", value=lambda cell: cell.verdict.value, left=True),
)


def columns(comparison: Comparison) -> list[Column]:
    """The columns shown: type, operator, root and cycle only where cells differ in them."""
    shown = []
    for column in COLUMNS:
        if column.title == "placement" and comparison.what:
            column = replace(column, title="what")
        texts = {column.text(cell) for cell in comparison.cells}
        all_alike = column.title in ONLY_WHERE_CELLS_DIFFER and len(texts) < 2
        no_interval = column.title == "interval" and texts == {"-"}
        if not all_alike and not no_interval:
            shown.append(column)
    return shown


def placement(key: CellKey) -> str:
    """`in place`, `out of place`."""
    return key.placement.replace("_", " ")


def junit(comparison: Comparison) -> str:
    """A case for each cell: a failure is slower by more than the tolerance, an error may be."""
    outcomes = {
        **dict.fromkeys(map(id, comparison.of(ComparisonVerdict.AMBIGUOUS)), SKIPPED),
        **dict.fromkeys(map(id, comparison.of(ComparisonVerdict.UNMATCHED)), SKIPPED),
        **dict.fromkeys(map(id, comparison.undecided()), ERROR),
        **dict.fromkeys(map(id, comparison.beyond()), FAILURE),
    }
    name = comparison.what or comparison.collective
    cases = []
    for cell in comparison.cells:
        outcome = outcomes.get(id(cell), "")
        key = cell.key
        parts = [cell_text(key), key.dtype, key.op, f"root {key.root}", f"cycle {key.cycle}"]
        message = f"B / A {ratio_text(cell.ratio)}, interval {interval_text(cell)}"
        text = f"{cell.verdict.value}: {message}"
        cases.append(Case(name, ", ".join(filter(None, parts)), outcome, text))
    return junit_xml({name: cases})


def cell_text(key: CellKey) -> str:
    """`1 MiB in place`."""
    return f"{format_size(key.size_bytes)} {placement(key)}"


def side(letter: str, side: ComparedSide) -> str:
    """`A  before.json: 2 x NVIDIA H200 on 1 host, nccl engine, NCCL 2.28.9`."""
    name = side.files[0]
    if len(set(side.files)) > 1:
        name = f"{len(side.files)} files, the first {name}"
    if side.runs > 1:
        name += f" ({side.runs} runs)"
    facts = side_facts(side)
    return f"{letter}  {name}: {facts}" if facts else f"{letter}  {name}"


def side_facts(side: ComparedSide) -> str:
    """`2 x NVIDIA H200 on 1 host, nccl engine, NCCL 2.28.9`, as far as they are known."""
    devices = ", ".join(f"{count} x {device}" for device, count in side.devices.items())
    if side.hosts:
        devices += f" on {counted(len(side.hosts), 'host')}"
    nccl = f"NCCL {nccl_version_text(side.nccl)}" if side.nccl else ""
    return ", ".join(filter(None, (devices, _engine_text(side), nccl)))


def _engine_text(side: ComparedSide) -> str:
    return f"{side.engine} engine" if side.engine else ""


def warnings(comparison: Comparison) -> list[str]:
    """What makes the two sides hard to compare: other ranks, devices, hosts or engines."""
    a, b = comparison.a, comparison.b
    pairs = [(_engine_text(a), _engine_text(b))]
    if a.devices and b.devices:
        pairs.append((counted(a.ranks, "rank"), counted(b.ranks, "rank")))
        pairs.append((counted(len(a.hosts), "host"), counted(len(b.hosts), "host")))
        pairs.append((" and ".join(a.devices), " and ".join(b.devices)))
    differing = [f"{of_a} / {of_b}" for of_a, of_b in pairs if of_a and of_b and of_a != of_b]
    if not differing:
        return []
    return [
        f"A and B are different set-ups ({', '.join(differing)}): a ratio says which of them is"
        " faster, not what changed"
    ]


def summary(comparison: Comparison) -> str:
    """`2 of 60 cells slower, largest 1.081x at 1 MiB in place`, and how many by too much."""
    total = counted(len(comparison.cells), "cell")
    slower = comparison.of(ComparisonVerdict.SLOWER)
    if not slower and not comparison.has_verdict():
        return f"no verdict on any of {total}"
    if not slower:
        text = f"none of {total} slower, {len(comparison.of(ComparisonVerdict.FASTER))} faster"
        undecided = len(comparison.undecided())
        may_be = f"; {undecided} ambiguous, measured slower by more than the tolerance"
        return text + may_be if undecided else text
    worst = max(slower, key=lambda cell: cell.ratio or 0.0)
    largest = f"largest {ratio_text(worst.ratio)} at {cell_text(worst.key)}"
    beyond = len(comparison.beyond())
    excess = f"{beyond} of them by more" if beyond else "none by more"
    return (
        f"{len(slower)} of {total} slower, {largest};"
        f" {excess} than the tolerance of {percent(comparison.tolerance)}"
    )


def closing(comparison: Comparison) -> list[str]:
    """The counts of all verdicts, the methods behind them, and the notes that limit them."""
    counts = ", ".join(
        f"{len(comparison.of(verdict))} {verdict.value}" for verdict in ComparisonVerdict
    )
    lines = [f"{counted(len(comparison.cells), 'cell')}: {counts}"]
    confidence = (
        f"{percent(comparison.confidence)} confidence over all cells together; the interval of"
        " same is of the cell's measurements alone"
    )
    for by in dict.fromkeys(cell.by for cell in comparison.cells if cell.by):
        method = f"judged by {METHODS[by]}"
        lines.append(method if by == "means" else f"{method}, {confidence}")
    if comparison.signs:
        signs = comparison.signs
        lines.append(
            f"whole sweep: B took longer in {signs.longer} cells and shorter in {signs.shorter},"
            f" sign test p = {signs.p:.2g}"
        )
    return lines + [f"note: {note}" for note in comparison.notes]


def title(comparison: Comparison) -> str:
    """`AllReduce`, `backends of all_reduce`."""
    return comparison.what or BY_NAME[comparison.collective].title


def opening(comparison: Comparison) -> list[str]:
    """The two sides, what makes them hard to compare, and the outcome."""
    return [
        title(comparison),
        side("A", comparison.a),
        side("B", comparison.b),
        "",
        *(f"warning: {warning}" for warning in warnings(comparison)),
        summary(comparison),
    ]


def text(comparison: Comparison, width: int | None = None) -> str:
    """The comparison for a terminal of `width` characters; None does not wrap lines."""
    table = aligned(columns(comparison), comparison.cells, width, DROP_ORDER)
    above = wrapped(_lines(opening(comparison)), width)
    below = wrapped(_lines(closing(comparison)), width)
    return f"{above}\n{table}\n{below}"


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def markdown(comparison: Comparison) -> str:
    """The comparison for a pull request: the summary, a table of the cells that differ, and a
    folded table of those that do not.
    """
    shown = columns(comparison)
    sides = [side("A", comparison.a), side("B", comparison.b)]
    parts = [
        f"**{title(comparison)}: {plain(summary(comparison))}**",
        *(f"**Warning:** {plain(warning)}" for warning in warnings(comparison)),
        _items(sides),
    ]
    same = [cell for cell in comparison.cells if cell.verdict is ComparisonVerdict.SAME]
    different = [cell for cell in comparison.cells if cell.verdict is not ComparisonVerdict.SAME]
    if different:
        parts.append(_table(shown, different))
    if same:
        parts.append(
            f"<details><summary>{counted(len(same), 'cell')} the same</summary>\n\n"
            f"{_table(shown, same)}\n"
            "</details>\n"
        )
    parts.append(_items(closing(comparison)))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _items(texts: Sequence[str]) -> str:
    return "".join(f"- {plain(text)}\n" for text in texts)


def _table(shown: Sequence[Column], cells: Sequence[ComparedCell]) -> str:
    table = table_head(shown)
    for cell in cells:
        table += table_line(_cell_markdown(column, cell) for column in shown)
    return table


def _cell_markdown(column: Column, cell: ComparedCell) -> str:
    if column.title == "verdict":
        return BOLD.get(cell.verdict, cell.verdict.value)
    return plain(column.text(cell))


def json(comparison: Comparison) -> str:
    """`busbw.comparison/1` with the sentences of the other views, indented, with a newline."""
    sentences = {
        "summary": summary(comparison),
        "warnings": warnings(comparison),
        "closing": closing(comparison),
    }
    document = msgspec.json.decode(json_codec.encode(comparison)) | sentences
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
