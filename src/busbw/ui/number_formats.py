"""Texts that several views share: numbers with units, versions, the machine and the operator's
column.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from busbw.core.cells import UNKNOWN_STOP, VAGUE, Figure, all_figures
from busbw.core.collectives import Collective
from busbw.core.finding import RunFinding
from busbw.core.pattern import SEND, PatternRow
from busbw.core.result import Cell, Outcome, Result, ResultRow
from busbw.core.sizes import counted, parse_float

TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
ROUNDED_UP = 0.99995  # from here on four digits read as 1
BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = ".:-=+*#@"
NOT_KNOWN = f"not known within a factor of {VAGUE}"
WIDE = 1.0  # half-width of an interval as a share of the time


def time_unit(seconds: float) -> tuple[float, str]:
    """The largest unit that gives at least 1, in seconds, and its name."""
    fitting_units = (unit for unit in TIME_UNITS if seconds >= ROUNDED_UP * unit[0])
    return next(fitting_units, TIME_UNITS[-1])


def time_text(seconds: float) -> str:
    """`17.41 us`, `12.44 ms`, `1.79 s`: four digits in the largest unit that gives at least 1."""
    scale, unit = time_unit(seconds)
    value = seconds / scale
    if not math.isfinite(value):
        return f"{value} {unit}"
    if value < 9.9995 and unit != "us":
        return f"{value:.3f} {unit}"
    if value < 99.995:
        return f"{value:.2f} {unit}"
    return f"{value:.1f} {unit}"


def bandwidth_text(bytes_per_s: float) -> str:
    """GB/s in at most seven characters and at least three digits: `1.42e-6`, `0.0123`; from 1 on
    with two decimals as nccl-tests prints it, one from 1000 on, none from 10000 on.
    """
    value = bytes_per_s / 1e9
    if 0 < value < 9.995e-4:
        return f"{value:.2e}".replace("e-0", "e-")
    if value < 1:
        return f"{value:#.3g}"
    if value < 999.995:
        return f"{value:.2f}"
    if value < 9999.95:
        return f"{value:.1f}"
    return f"{value:.0f}"


def nominal_text(bytes_per_s: float) -> str:
    """GB/s of a rate that is given, not measured: `450`, `3.125`."""
    return f"{bytes_per_s / 1e9:.6g}"


def micro_text(seconds: float) -> str:
    """Microseconds in at most six characters: `0.53`, `12.3`, `1234`."""
    micro = seconds * 1e6
    if micro < 9.995:
        return f"{micro:.2f}"
    if micro < 999.95:
        return f"{micro:.1f}"
    return f"{micro:.0f}"


def percent(share: float) -> str:
    """`1 %`, `99.9 %`."""
    return f"{100 * share:.6g} %"


def percent_text(part: float, whole: float | None) -> str:
    """`77.2`: part in percent of whole.

    `-` if the whole is unknown, `<0.1` for a value that would be rounded to 0.
    """
    if not whole or not math.isfinite(part):
        return "-"
    value = 100 * part / whole
    return "<0.1" if 0 < value < 0.05 else f"{value:.1f}"


def half_width_text(figure: Figure) -> str:
    """The wider side of a cell's interval in percent of its time: `4.9`, `>999`; `-` without."""
    percent = 100 * figure.half_width
    if percent == math.inf:
        return "-"
    if percent > 999:
        return ">999"
    if percent >= 99.95:
        return f"{percent:.0f}"
    return f"{percent:.1f}"


def busbw_text(figure: Figure) -> str:
    """`70.76 GB/s +-0.4 %`; `70.76 GB/s` for a mean of classic timing, which has no interval;
    `0.63 GB/s (0.30 to 2.10)` for an interval so wide that per cent say little, and
    `0.63 GB/s (not known within a factor of 10)` for one that says nothing.
    """
    text = f"{bandwidth_text(figure.busbw)} GB/s"
    if figure.is_vague:
        return f"{text} ({NOT_KNOWN})"
    if WIDE < figure.half_width < math.inf:
        return f"{text} ({range_text(figure)})"
    uncertainty = uncertainty_text(figure)
    if not uncertainty:
        return text
    return f"{text} {uncertainty}" if figure.half_width < math.inf else f"{text}, {uncertainty}"


def range_text(figure: Figure) -> str:
    """`60.10 to 81.33`: the busbw at both ends of the interval, in GB/s."""
    low, high = figure.busbw_range
    if high == math.inf:
        return f"{bandwidth_text(low)} or more"
    return f"{bandwidth_text(low)} to {bandwidth_text(high)}"


def uncertainty_text(figure: Figure) -> str:
    """`+-0.4 %`, `2 samples without an interval`, and nothing for a mean of classic timing, or
    where a saved table does not say.
    """
    if not figure.cell.stopped:
        return ""
    if figure.half_width < math.inf:
        return f"+-{half_width_text(figure)} %"
    if figure.cell.stopped == UNKNOWN_STOP:
        return ""
    return f"{counted(figure.n, 'sample')} without an interval"


def no_headline(result: Result) -> str:
    """Why a result has no headline figure."""
    if any(all_figures(result)):
        return "its cells have no busbw"
    return "nothing was measured"


def peers_text(row: PatternRow) -> str:
    """`root 0`, `0->1` for a send or receive, `-` for a call of all ranks alike."""
    if row.root is not None:
        return f"root {row.root}"
    if row.peer is None:
        return "-"
    rank = "?" if row.rank is None else row.rank
    return f"{rank}->{row.peer}" if row.function == SEND else f"{row.peer}->{rank}"


def text_or_unknown(value: Any, text: Callable[[Any], str]) -> str:
    """The text of a value, `-` where it is unknown."""
    return "-" if value is None else text(value)


def nccl_version_text(number: int) -> str:
    """`2.28.9` for NCCL's number 22809; before 2.9 it had one digit less: 2804 is 2.8.4."""
    major, minor_and_patch = divmod(number, 10000 if number >= 10000 else 1000)
    minor, patch = divmod(minor_and_patch, 100)
    return f"{major}.{minor}.{patch}"


def nccl_version_number(text: str) -> int:
    """22809 for `2.28.9`, the inverse of `nccl_version_text`; the text must be three numbers."""
    major, minor, patch = (int(part) for part in text.split("."))
    major_factor = 1000 if (major, minor) < (2, 9) else 10000
    return major * major_factor + minor * 100 + patch


def machine(result: Outcome) -> str:
    """`2 x NVIDIA H200 on 1 host`, empty when no devices are known."""
    devices = result.world.devices
    if not devices:
        return ""
    counts = Counter(device.name or "unnamed device" for device in devices)
    hosts = len({device.host for device in devices})
    names = ", ".join(f"{count} x {name}" for name, count in counts.items())
    return f"{names} on {counted(hosts, 'host')}"


def library(result: Outcome) -> str:
    """`nccl engine, NCCL 2.28.9, network Socket, loop native`, as far as they are known.

    The loop is that of classic timing, whose times depend on it.
    """
    engine = f"{result.library.engine} engine" if result.library.engine else ""
    nccl = f"NCCL {nccl_version_text(result.library.nccl)}" if result.library.nccl else ""
    network = f"network {result.library.network}" if result.library.network else ""
    loop = ""
    if isinstance(result, Result) and result.loop and not result.spec.sampling:
        loop = f"loop {result.loop}"
    return ", ".join(filter(None, (engine, nccl, network, loop)))


def known_count(row: ResultRow) -> int | None:
    """The elements of a row, None where its table had no columns of counts and types."""
    return None if row.count == 0 and not row.dtype else row.count


def op_column(collective: Collective, row: ResultRow) -> str:
    """The text of nccl-tests' redop column."""
    if collective.reduces or collective.redop_column == "op":
        return row.op
    return collective.redop_column


def op_of_column(collective: Collective, text: str) -> str:
    """The operator a row was run with, from nccl-tests' redop column: undoes `op_column`."""
    return text if collective.reduces or collective.redop_column == "op" else ""


def problems(result: Result) -> list[str]:
    """Wrong data, an incomplete sweep and errors, a sentence each."""
    sentences = []
    if result.wrong():
        checks = [
            figure.cell.wrong for figure in all_figures(result) if figure.cell.wrong is not None
        ]
        failed = sum(map(bool, checks))
        wrong = f"{failed} of {counted(len(checks), 'check')}"
        if not failed:  # a log may state only the sum
            wrong = counted(result.out_of_bounds, "check")
        sentences.append(f"wrong data: {wrong} saw wrong elements")
    if not result.complete:
        sentences.append("the sweep did not end; these sizes are what was measured")
    return sentences + [f"error: {error}" for error in result.errors]


def run_problems(result: Outcome) -> list[str]:
    """That a run did not end, and its errors, a sentence each."""
    kept = "these rows are what was measured" if result.measured else "nothing was measured"
    unended = [] if result.complete else [f"the run did not end; {kept}"]
    return unended + [f"error: {error}" for error in result.errors]


def sparkline(values: Sequence[float]) -> str:
    """One bar per value, from the lowest for 0 to the highest for the largest; ' ' for nan."""
    top = max(filter(math.isfinite, values), default=0.0)
    return "".join(_bar(value, top) for value in values)


def _bar(value: float, top: float) -> str:
    if not math.isfinite(value):
        return " "
    if top <= 0:
        return BARS[0]
    return BARS[round((len(BARS) - 1) * (value / top))]


def finding_text(finding: RunFinding) -> str:
    """`FAIL    message  [id]`, then the evidence and the fix, if any, each on a line."""
    text = f"{finding.verdict.value.upper():<7} {finding.message}  [{finding.id}]\n"
    if finding.evidence:
        text += f"        evidence: {finding.evidence}\n"
    if finding.fix:
        text += f"        fix: {finding.fix}\n"
    return text


def local_time(text: str) -> str:
    """A date and time as nccl-tests writes it (`2026-11-21 18:24:51`); other text as it is."""
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text


def printed_time_s(result: Result, cell: Cell) -> float:
    """Seconds in the time column: with -C the CPU's time to enqueue, if it was measured."""
    if result.spec.report_cputime and cell.cpu_time_s is not None:
        return cell.cpu_time_s
    return cell.time_s


def minimum_gb_s(result: Result) -> float | None:
    """NCCL_TESTS_MIN_BW in GB/s as C's atof reads it: `100GB` is 100, a text without a number 0.

    -1 counts as not set, as in nccl-tests.
    """
    text = result.environment.get("NCCL_TESTS_MIN_BW")
    value = -1.0 if text is None else parse_float(text)
    return None if value == -1 else value


def plain(text: str, encoding: str) -> str:
    """The text in the characters of `encoding`: bars that it does not have become ASCII, other
    characters that it does not have a question mark.
    """
    try:
        text.encode(encoding)
    except LookupError:
        return plain(text, "ascii")
    except UnicodeEncodeError:
        ascii_bars = text.translate(str.maketrans(BARS, PLAIN_BARS))
        return ascii_bars.encode(encoding, "replace").decode(encoding)
    return text
