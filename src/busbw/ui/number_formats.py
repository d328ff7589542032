"""Texts that several views share: numbers with units, versions, the machine, and the column of
the operator.

Columns of every table: one definition each, printed as plain text, Markdown or HTML.
"""

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from busbw.core.cells import Figure, every, settled
from busbw.core.collectives import Collective
from busbw.core.finding import Finding
from busbw.core.pattern import SEND, PatternRow
from busbw.core.result import Cell, Outcome, Result, Row
from busbw.core.sizes import counted, parse_float

# its length indents what follows a line break: `PASS    `, `peak   `, `        fix: `
LABEL = re.compile(r"[A-Z]{4,7} +|\S+ {2,}| *")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    `value` takes the item that a line shows, and gives the text of the cell or a number.

    `width` is the least number of characters, for tables whose rows are printed one by one. Text is
    aligned to the right, or to the `left`. `shown` says for a result whether its table has the
    column.
    """

    title: str
    value: Callable[..., object]
    unit: str = ""
    width: int = 0
    left: bool = False
    shown: Callable[[Result], bool] = lambda result: True

    @property
    def heading(self) -> str:
        """`time`, `algbw (GB/s)`."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def text(self, *item: object) -> str:
        """One cell."""
        return str(self.value(*item))

    def pad(self, text: str, width: int) -> str:
        """The text aligned in `width` characters."""
        return text.ljust(width) if self.left else text.rjust(width)


def fitting(
    columns: Sequence[Column], widths: Sequence[int], limit: int | None, order: Sequence[str]
) -> list[int]:
    """Indices of the columns that fit `limit` characters, two spaces apart: columns are dropped
    in `order`, a list of titles.
    """
    kept = list(range(len(columns)))
    for title in order:
        if limit is None or sum(widths[at] + 2 for at in kept) - 2 <= limit:
            break
        kept = [at for at in kept if columns[at].title != title]
    return kept


def line(columns: Sequence[Column], texts: Iterable[str]) -> str:
    """Texts in columns of their least widths, two spaces apart."""
    return (
        "  ".join(
            column.pad(text, column.width) for column, text in zip(columns, texts, strict=True)
        ).rstrip()
        + "\n"
    )


def aligned(
    columns: Sequence[Column],
    items: Iterable[object],
    limit: int | None = None,
    order: Sequence[str] = (),
) -> str:
    """The whole table under its titles, each column as wide as its longest text; narrowed to
    `limit` characters as `fitting` does.
    """
    lines = [
        [column.heading for column in columns],
        *([column.text(item) for column in columns] for item in items),
    ]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    kept = fitting(columns, widths, limit, order)
    return "".join(
        "  ".join(columns[at].pad(texts[at], widths[at]) for at in kept).rstrip() + "\n"
        for texts in lines
    )


def wrapped(text: str, width: int | None) -> str:
    """The text with its long lines broken between words; what follows is aligned with the text
    after the line's label.
    """
    if width is None:
        return text
    return "".join(_wrapped(one, width) for one in text.splitlines(keepends=True))


def _wrapped(one: str, width: int) -> str:
    if len(one.rstrip("\n")) <= width:
        return one
    label = LABEL.match(one)
    start = label.end() if label else 0
    hanging = " " * (start if one[:start].strip() else start + 2)
    lines = textwrap.wrap(
        one[start:],
        width,
        initial_indent=one[:start],
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = ".:-=+*#@"


def time_text(seconds: float) -> str:
    """`17.41 us`, `12.44 ms`, `1.79 s`: the largest unit in which the number is at least 1, four
    digits.
    """
    scale, unit = next(
        ((scale, unit) for scale, unit in TIME_UNITS if seconds >= scale), TIME_UNITS[-1]
    )
    value = seconds / scale
    if not math.isfinite(value):
        return f"{value} {unit}"
    decimals = 3 if value < 9.9995 and unit != "us" else 2 if value < 99.995 else 1
    return f"{value:.{decimals}f} {unit}"


def bandwidth_text(bytes_per_s: float) -> str:
    """GB/s with two decimals (one from 1000 on), `<0.01` for what would be rounded to 0."""
    value = bytes_per_s / 1e9
    if 0 < value < 0.005:
        return "<0.01"
    return (
        f"{value:.2f}" if value < 999.995 else f"{value:.1f}" if value < 9999.95 else f"{value:.0f}"
    )


def micro_text(seconds: float) -> str:
    """Microseconds in at most six characters: `0.53`, `12.3`, `1234`."""
    micro = seconds * 1e6
    return f"{micro:.2f}" if micro < 9.995 else f"{micro:.1f}" if micro < 999.95 else f"{micro:.0f}"


def percent(share: float) -> str:
    """`1 %`, `99.9 %`."""
    return f"{100 * share:.6g} %"


def percent_text(part: float, whole: float | None) -> str:
    """`77.2`: part in percent of whole, `-` when the whole is unknown; `<0.1` for what would be
    rounded to 0.
    """
    if not whole or not math.isfinite(part):
        return "-"
    value = 100 * part / whole
    return "<0.1" if 0 < value < 0.05 else f"{value:.1f}"


def half_width_text(figure: Figure) -> str:
    """The wider side of a cell's interval as a percentage of its time: `4.9`, `120`, `>999`; `-`
    without an interval.
    """
    percent = 100 * figure.half_width
    return (
        "-"
        if percent == math.inf
        else ">999"
        if percent > 999
        else f"{percent:.0f}"
        if percent >= 99.95
        else f"{percent:.1f}"
    )


def busbw_text(figure: Figure) -> str:
    """`70.76 GB/s +-0.4 %`; `70.76 GB/s` for a mean of classic timing, which has no interval."""
    text = f"{bandwidth_text(figure.busbw)} GB/s"
    if not figure.cell.stopped:
        return text
    known = figure.half_width < math.inf
    return (
        f"{text} +-{half_width_text(figure)} %"
        if known
        else f"{text}, {counted(figure.n, 'sample')} without an interval"
    )


def no_headline(result: Result) -> str:
    """Why no cell speaks for the sweep."""
    count = sum(1 for _ in every(result))
    if settled(result):
        return "its cells have no busbw"
    return (
        f"none of {counted(count, 'cell')} reached the requested precision"
        if count
        else "nothing was measured"
    )


def peers_text(row: PatternRow) -> str:
    """`root 0`, `0->1` for a send or receive, `-` for a call of all ranks alike."""
    if row.root is not None:
        return f"root {row.root}"
    if row.peer is None:
        return "-"
    own = "?" if row.rank is None else row.rank
    return f"{own}->{row.peer}" if row.function == SEND else f"{row.peer}->{own}"


def known(value: Any, text: Callable[[Any], str]) -> str:
    """The text of a value, `-` where it is unknown."""
    return "-" if value is None else text(value)


def nccl_version_text(number: int) -> str:
    """`2.28.9` of NCCL's version number 22809; before 2.9 the minor version had one digit less
    (2804 is 2.8.4).
    """
    major, rest = divmod(number, 10000) if number >= 10000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def nccl_version_number(text: str) -> int:
    """22809 of `2.28.9`, the inverse of `nccl_version_text`; the text must be three numbers."""
    major, minor, patch = (int(part) for part in text.split("."))
    return major * (1000 if (major, minor) < (2, 9) else 10000) + minor * 100 + patch


def machine(result: Outcome) -> str:
    """`2 x NVIDIA H200 on 1 host`, empty when no devices are known."""
    devices = result.world.devices
    if not devices:
        return ""
    names = Counter(device.name or "unnamed device" for device in devices)
    hosts = len({device.host for device in devices})
    return (
        ", ".join(f"{count} x {name}" for name, count in names.items())
        + f" on {counted(hosts, 'host')}"
    )


def library(result: Outcome) -> str:
    """`nccl engine, NCCL 2.28.9, network Socket`, as far as they are known."""
    engine = f"{result.library.engine} engine" if result.library.engine else ""
    nccl = f"NCCL {nccl_version_text(result.library.nccl)}" if result.library.nccl else ""
    network = f"network {result.library.network}" if result.library.network else ""
    return ", ".join(filter(None, (engine, nccl, network)))


def known_count(row: Row) -> int | None:
    """The elements of a row, None where its table had no columns of counts and types."""
    return None if row.count == 0 and not row.dtype else row.count


def op_column(collective: Collective, row: Row) -> str:
    """The text of nccl-tests' redop column."""
    return (
        row.op if collective.reduces or collective.redop_column == "op" else collective.redop_column
    )


def op_of_column(collective: Collective, text: str) -> str:
    """The operator a row was run with, from the text of nccl-tests' redop column: the inverse of
    `op_column`.
    """
    return text if collective.reduces or collective.redop_column == "op" else ""


def problems(result: Result) -> list[str]:
    """Wrong data, an incomplete sweep and errors, a sentence each."""
    checks = [figure.cell.wrong for figure in every(result) if figure.cell.wrong is not None]
    of_all = f"{sum(map(bool, checks))} of {counted(len(checks), 'check')}"
    # a log may state only the sum
    wrong = of_all if any(checks) else counted(result.out_of_bounds, "check")
    said = [f"wrong data: {wrong} saw wrong elements"] if result.wrong() else []
    if not result.complete:
        said.append("the sweep did not end; these sizes are what was measured")
    return said + [f"error: {error}" for error in result.errors]


def sparkline(values: Sequence[float]) -> str:
    """One bar per value, from the lowest for 0 to the highest for the largest; a space where
    there is no finite value.
    """
    top = max((value for value in values if math.isfinite(value)), default=0.0)
    steps = len(BARS) - 1
    return "".join(
        BARS[round(steps * (value / top)) if top > 0 else 0] if math.isfinite(value) else " "
        for value in values
    )


def finding_text(finding: Finding) -> str:
    """`FAIL    message  [id]`, and under it the evidence and the fix where there are any."""
    lines = [f"{finding.verdict.value.upper():<7} {finding.message}  [{finding.id}]"]
    lines += [
        f"{'':8}{name}: {said}"
        for name, said in (("evidence", finding.evidence), ("fix", finding.fix))
        if said
    ]
    return "\n".join(lines) + "\n"


def local_time(text: str) -> str:
    """A time of day as nccl-tests writes it (`2026-11-21 18:24:51`); other texts stay as they
    are.
    """
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text


def printed_time_s(result: Result, cell: Cell) -> float:
    """What the time column shows: with -C the CPU's time to enqueue where it was measured, else
    the time of the operation.
    """
    return (
        cell.cpu_time_s
        if result.spec.report_cputime and cell.cpu_time_s is not None
        else cell.time_s
    )


def minimum_gb_s(result: Result) -> float | None:
    """NCCL_TESTS_MIN_BW in GB/s as C's atof reads it, `100GB` as 100 and no number as 0; -1
    counts as not set, as in nccl-tests.
    """
    text = result.environment.get("NCCL_TESTS_MIN_BW")
    value = -1.0 if text is None else parse_float(text)
    return None if value == -1 else value


def plain(text: str, encoding: str) -> str:
    """The text in the characters of `encoding`: bars become ASCII where it has none, other
    missing characters a question mark.
    """
    try:
        text.encode(encoding)
    except LookupError:
        return plain(text, "ascii")
    except UnicodeEncodeError:
        return (
            text.translate(str.maketrans(BARS, PLAIN_BARS))
            .encode(encoding, "replace")
            .decode(encoding)
        )
    return text
