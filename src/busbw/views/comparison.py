"""A comparison as text: what differs first, then every cell, then what the verdicts rest on. Also as JSON."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from busbw.core import wire
from busbw.core.cells import CellKey
from busbw.core.collectives import BY_NAME
from busbw.core.comparison import ComparedCell, Comparison, Side, Verdict
from busbw.core.sizes import format_size
from busbw.stats.judging import MEANS_S, MEANS_SHARE
from busbw.views.words import nccl_version_text, time_text

PLACEMENT_WORDS = {"out_of_place": "out of place", "in_place": "in place"}
METHODS = {
    "samples": "rank test of the samples",
    "runs": "permutation of whole runs",
    "means": "single means, which cannot be tested: slower and faster are differences of more than "
    f"{MEANS_S * 1e6:.0f} us plus {100 * MEANS_SHARE:.0f}%, beyond what such means vary by",
}


@dataclass(frozen=True, slots=True)
class Column:
    """Title, whether it is aligned to the right, and the text of one cell."""

    title: str
    right: bool
    text: Callable[[ComparedCell], str]


def ratio_text(ratio: float | None) -> str:
    """`1.031x`, `53.1x`; `-` where there is none."""
    if ratio is None or not math.isfinite(ratio):
        return "-"
    return f"{ratio:.3f}x" if ratio < 9.9995 else f"{ratio:.1f}x"


def interval_text(cell: ComparedCell) -> str:
    """`0.980 to 1.020`; `-` where there is none."""
    return "-" if cell.low is None or cell.high is None else f"{ratio_text(cell.low)[:-1]} to {ratio_text(cell.high)[:-1]}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else time_text(seconds)


COLUMNS: tuple[Column, ...] = (
    Column("size", True, lambda cell: format_size(cell.key.size_bytes)),
    Column("type", True, lambda cell: cell.key.dtype),
    Column("op", True, lambda cell: cell.key.op),
    Column("root", True, lambda cell: str(cell.key.root)),
    Column("cycle", True, lambda cell: str(cell.key.cycle)),
    Column("placement", False, lambda cell: PLACEMENT_WORDS[cell.key.placement]),
    Column("time A", True, lambda cell: _time(cell.a_s)),
    Column("time B", True, lambda cell: _time(cell.b_s)),
    Column("B / A", True, lambda cell: ratio_text(cell.ratio)),
    Column("interval", False, interval_text),
    Column("verdict", False, lambda cell: cell.verdict.value),
)
ONLY_WHERE_THEY_DIFFER = {"type", "op", "root", "cycle"}
ONLY_WHERE_THERE_IS_ONE = {"interval"}


def columns(comparison: Comparison) -> list[Column]:
    """The columns shown: type, operator, root and cycle where the cells differ in them, the interval where any cell has one."""
    shown = []
    for column in COLUMNS:
        texts = {column.text(cell) for cell in comparison.cells}
        few = (column.title in ONLY_WHERE_THEY_DIFFER and len(texts) < 2) or (column.title in ONLY_WHERE_THERE_IS_ONE and texts == {"-"})
        if not few:
            shown.append(column)
    return shown


def place(key: CellKey) -> str:
    """`1 MiB in place`."""
    return f"{format_size(key.size_bytes)} {PLACEMENT_WORDS[key.placement]}"


def side(letter: str, its: Side) -> str:
    """`A  before.json: 2 x NVIDIA H200 on 1 host, nccl engine, NCCL 2.28.9`."""
    name = its.files[0] if len(its.files) == 1 else f"{len(its.files)} files, the first {its.files[0]}"
    name += f" ({its.runs} runs)" if its.runs > 1 else ""
    hosts = f" on {len(its.hosts)} host{'s' if len(its.hosts) > 1 else ''}" if its.hosts else ""
    devices = ", ".join(f"{count} x {device}" for device, count in its.devices.items()) + hosts
    engine = f"{its.engine} engine" if its.engine else ""
    nccl = f"NCCL {nccl_version_text(its.nccl)}" if its.nccl else ""
    facts = ", ".join(fact for fact in (devices, engine, nccl) if fact)
    return f"{letter}  {name}: {facts}" if facts else f"{letter}  {name}"


def summary(comparison: Comparison) -> str:
    """`2 of 60 cells slower, largest 1.081x at 1 MiB in place`; whether any is beyond the tolerance."""
    total, slower = number(len(comparison.cells)), comparison.of(Verdict.SLOWER)
    if not slower:
        faster = comparison.of(Verdict.FASTER)
        return f"none of {total} slower, {len(faster)} faster" if comparison.has_verdict() else f"no verdict on any of {total}"
    worst = max(slower, key=lambda cell: cell.ratio or 0.0)
    beyond = len(comparison.beyond())
    tolerated = f"{beyond} of them by more" if beyond else "none by more"
    text = f"{len(slower)} of {total} slower, largest {ratio_text(worst.ratio)} at {place(worst.key)}"
    return f"{text}; {tolerated} than the tolerance of {percent(comparison.tolerance)}"


def number(count: int) -> str:
    """`1 cell`, `60 cells`."""
    return f"{count} cell{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """`5%`."""
    return f"{100 * share:.6g}%"


def closing(comparison: Comparison) -> list[str]:
    """The counts of all verdicts, what they rest on, and what limits them."""
    counts = ", ".join(f"{len(comparison.of(verdict))} {verdict.value}" for verdict in Verdict)
    lines = [f"{number(len(comparison.cells))}: {counts}"]
    for by in dict.fromkeys(cell.by for cell in comparison.cells if cell.by):
        sure = "" if by == "means" else f", {percent(comparison.confidence)} confidence over all cells together; intervals are per cell"
        lines.append(f"judged by {METHODS[by]}{sure}")
    if comparison.signs:
        signs = comparison.signs
        lines.append(f"whole sweep: B took longer in {signs.longer} cells and shorter in {signs.shorter}, sign test p = {signs.p:.2g}")
    return lines + [f"note: {note}" for note in comparison.notes]


def aligned(lines: Sequence[Sequence[str]], right: Collection[int]) -> str:
    """Lines of words in columns two spaces apart; those in `right` are aligned to the right."""
    widths = [max(map(len, words)) for words in zip(*lines, strict=True)]
    table = ""
    for line in lines:
        words = (word.rjust(width) if at in right else word.ljust(width) for at, (word, width) in enumerate(zip(line, widths, strict=True)))
        table += "  ".join(words).rstrip() + "\n"
    return table


def text(comparison: Comparison) -> str:
    """The whole text."""
    shown = columns(comparison)
    lines = [[column.title for column in shown], *([column.text(cell) for column in shown] for cell in comparison.cells)]
    table = aligned(lines, {at for at, column in enumerate(shown) if column.right})
    head = [BY_NAME[comparison.collective].title, side("A", comparison.a), side("B", comparison.b), "", summary(comparison)]
    return "\n".join(head) + f"\n\n{table}\n" + "\n".join(closing(comparison)) + "\n"


def json(comparison: Comparison) -> str:
    """`busbw.comparison/1`, indented, with a newline at its end."""
    return msgspec.json.format(wire.encode(comparison), indent=2).decode() + "\n"
