"""A comparison as text, Markdown and JSON: warnings and what differs first, then every cell, then
what the verdicts rest on.

Each sentence is made once for these and for the HTML report.
"""

import math
from collections.abc import Sequence

import msgspec

from busbw.core import json_codec
from busbw.core.cells import CellKey, ComparedCell, Comparison, Side, Verdict
from busbw.core.collectives import BY_NAME
from busbw.core.sizes import counted, format_size
from busbw.measure.formats.markdown import plain, table_head, table_line
from busbw.stats.judging import MEANS_S, MEANS_SHARE
from busbw.ui.number_formats import (
    Column,
    aligned,
    known,
    nccl_version_text,
    percent,
    time_text,
    wrapped,
)

METHODS = {
    "samples": "rank test of the samples",
    "runs": "permutation of whole runs",
    "means": (
        "single means, which cannot be tested: slower and faster are differences of more than "
        f"{MEANS_S * 1e6:.0f} us plus {100 * MEANS_SHARE:.0f} %, beyond what such means vary by"
    ),
}
BOLD = {verdict: f"**{verdict.value}**" for verdict in (Verdict.SLOWER, Verdict.FASTER)}
DROP_ORDER = ("interval", "time A", "time B")
ONLY_WHERE_CELLS_DIFFER = {"type", "op", "root", "cycle"}


def ratio_text(ratio: float | None) -> str:
    """`1.031x`, `53.1x`, `8300x`, `0.00012x`: four digits from 0.1 on, two below; `-` where it
    is unknown.
    """
    if ratio is None or not math.isfinite(ratio):
        return "-"
    if ratio < 0.1:
        return (
            f"{float(f'{ratio:.2g}'):.12f}".rstrip("0").rstrip(".") + "x"
            if ratio >= 1e-9
            else "<0.000000001x"
        )
    return (
        f"{ratio:.3f}x"
        if ratio < 9.9995
        else f"{ratio:.1f}x"
        if ratio < 999.95
        else f"{float(f'{ratio:.4g}'):.0f}x"
    )


def interval_text(cell: ComparedCell) -> str:
    """`0.980 to 1.020`; `-` where it is unknown."""
    return (
        "-"
        if cell.low is None or cell.high is None
        else f"{ratio_text(cell.low)[:-1]} to {ratio_text(cell.high)[:-1]}"
    )


# The value of each column takes a ComparedCell.
COLUMNS: tuple[Column, ...] = (
    Column(title="size", value=lambda cell: format_size(cell.key.size_bytes)),
    Column(title="type", value=lambda cell: cell.key.dtype),
    Column(title="op", value=lambda cell: cell.key.op),
    Column(title="root", value=lambda cell: cell.key.root),
    Column(title="cycle", value=lambda cell: cell.key.cycle),
    Column(title="placement", value=lambda cell: placement(cell.key), left=True),
    Column(title="time A", value=lambda cell: known(cell.a_s, time_text)),
    Column(title="time B", value=lambda cell: known(cell.b_s, time_text)),
    Column(title="B / A", value=lambda cell: ratio_text(cell.ratio)),
    Column(title="interval", value=interval_text, left=True),
    Column(title="verdict", value=lambda cell: cell.verdict.value, left=True),
)


def columns(comparison: Comparison) -> list[Column]:
    """The columns shown: type, operator, root and cycle where the cells differ in them, the
    interval where any cell has one.
    """
    texts = {column.title: {column.text(cell) for cell in comparison.cells} for column in COLUMNS}
    gone = {title for title in ONLY_WHERE_CELLS_DIFFER if len(texts[title]) < 2} | (
        {"interval"} if texts["interval"] == {"-"} else set()
    )
    return [column for column in COLUMNS if column.title not in gone]


def placement(key: CellKey) -> str:
    """`in place`, `out of place`."""
    return key.placement.replace("_", " ")


def cell_text(key: CellKey) -> str:
    """`1 MiB in place`."""
    return f"{format_size(key.size_bytes)} {placement(key)}"


def side(letter: str, its: Side) -> str:
    """`A  before.json: 2 x NVIDIA H200 on 1 host, nccl engine, NCCL 2.28.9`."""
    name = (
        its.files[0]
        if len(set(its.files)) == 1
        else f"{len(its.files)} files, the first {its.files[0]}"
    )
    name += f" ({its.runs} runs)" if its.runs > 1 else ""
    nccl = f"NCCL {nccl_version_text(its.nccl)}" if its.nccl else ""
    hosts = f" on {counted(len(its.hosts), 'host')}" if its.hosts else ""
    devices = ", ".join(f"{count} x {device}" for device, count in its.devices.items()) + hosts
    facts = ", ".join(filter(None, (devices, _engine(its), nccl)))
    return f"{letter}  {name}: {facts}" if facts else f"{letter}  {name}"


def _engine(its: Side) -> str:
    return f"{its.engine} engine" if its.engine else ""


def warnings(comparison: Comparison) -> list[str]:
    """What makes the two sides hard to compare: other ranks, devices, hosts or engines."""
    a, b = comparison.a, comparison.b
    pairs = [(_engine(a), _engine(b))]
    if a.devices and b.devices:
        pairs.append((counted(a.ranks, "rank"), counted(b.ranks, "rank")))
        pairs.append((counted(len(a.hosts), "host"), counted(len(b.hosts), "host")))
        pairs.append((" and ".join(a.devices), " and ".join(b.devices)))
    differing = [
        f"{ours} / {theirs}" for ours, theirs in pairs if ours and theirs and ours != theirs
    ]
    if not differing:
        return []
    return [
        f"A and B are different set-ups ({', '.join(differing)}): a ratio says which of them is"
        " faster, not what changed"
    ]


def summary(comparison: Comparison) -> str:
    """`2 of 60 cells slower, largest 1.081x at 1 MiB in place`; whether any is beyond the
    tolerance.
    """
    total, slower = counted(len(comparison.cells), "cell"), comparison.of(Verdict.SLOWER)
    if not slower:
        faster = comparison.of(Verdict.FASTER)
        return (
            f"none of {total} slower, {len(faster)} faster"
            if comparison.has_verdict()
            else f"no verdict on any of {total}"
        )
    worst = max(slower, key=lambda cell: cell.ratio or 0.0)
    beyond = len(comparison.beyond())
    tolerated = f"{beyond} of them by more" if beyond else "none by more"
    text = (
        f"{len(slower)} of {total} slower, largest {ratio_text(worst.ratio)} at"
        f" {cell_text(worst.key)}"
    )
    return f"{text}; {tolerated} than the tolerance of {percent(comparison.tolerance)}"


def closing(comparison: Comparison) -> list[str]:
    """The counts of all verdicts, what they rest on, and what limits them."""
    counts = ", ".join(f"{len(comparison.of(verdict))} {verdict.value}" for verdict in Verdict)
    lines = [f"{counted(len(comparison.cells), 'cell')}: {counts}"]
    for by in dict.fromkeys(cell.by for cell in comparison.cells if cell.by):
        confidence = (
            f", {percent(comparison.confidence)} confidence over all cells together; intervals are"
            " per cell"
        )
        lines.append(f"judged by {METHODS[by]}{'' if by == 'means' else confidence}")
    if comparison.signs:
        signs = comparison.signs
        lines.append(
            f"whole sweep: B took longer in {signs.longer} cells and shorter in {signs.shorter},"
            f" sign test p = {signs.p:.2g}"
        )
    return lines + [f"note: {note}" for note in comparison.notes]


def text(comparison: Comparison, width: int | None = None) -> str:
    """The whole text."""
    head = [
        BY_NAME[comparison.collective].title,
        side("A", comparison.a),
        side("B", comparison.b),
        "",
    ]
    head += [*(f"warning: {warning}" for warning in warnings(comparison)), summary(comparison)]
    table = aligned(columns(comparison), comparison.cells, width, DROP_ORDER)
    above, below = ("".join(f"{line}\n" for line in lines) for lines in (head, closing(comparison)))
    return f"{wrapped(above, width)}\n{table}\n{wrapped(below, width)}"


def markdown(comparison: Comparison) -> str:
    """For a pull request: the summary, a table of what is not the same, and the rest of the
    cells folded away.
    """
    shown = columns(comparison)
    title = BY_NAME[comparison.collective].title
    parts = [
        f"**{title}: {plain(summary(comparison))}**",
        *(f"**Warning:** {plain(warning)}" for warning in warnings(comparison)),
        "".join(
            f"- {plain(side(letter, its))}\n"
            for letter, its in (("A", comparison.a), ("B", comparison.b))
        ),
    ]
    same = [cell for cell in comparison.cells if cell.verdict is Verdict.SAME]
    other = [cell for cell in comparison.cells if cell.verdict is not Verdict.SAME]
    if other:
        parts.append(_table(shown, other))
    if same:
        parts.append(
            f"<details><summary>{counted(len(same), 'cell')} the"
            f" same</summary>\n\n"
            f"{_table(shown, same)}\n"
            f"</details>\n"
        )
    parts.append("".join(f"- {plain(line)}\n" for line in closing(comparison)))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(shown: Sequence[Column], cells: Sequence[ComparedCell]) -> str:
    return table_head(shown) + "".join(
        table_line(_text(column, cell) for column in shown) for cell in cells
    )


def _text(column: Column, cell: ComparedCell) -> str:
    return (
        BOLD.get(cell.verdict, cell.verdict.value)
        if column.title == "verdict"
        else plain(column.text(cell))
    )


def json(comparison: Comparison) -> str:
    """`busbw.comparison/1` with the sentences of the other views, indented, with a newline at
    its end.
    """
    said = {
        "summary": summary(comparison),
        "warnings": warnings(comparison),
        "closing": closing(comparison),
    }
    document = msgspec.json.decode(json_codec.encode(comparison)) | said
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
