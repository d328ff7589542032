"""The history as text: the list of runs, one size over time, and a run compared with the last
ones.

`changes` names what differs between the set-ups of two runs of one machine: NCCL, drivers, kernel,
packages and settings.
"""

import math
from collections.abc import Iterable, Sequence

from busbw.core.cells import CellKey
from busbw.core.collectives import BY_NAME
from busbw.core.history import (
    MIN_RUNS,
    CheckedCell,
    HistoryBasis,
    HistoryCheck,
    Standing,
    StoredRun,
    StoredTime,
    machine_text,
)
from busbw.core.result import Outcome
from busbw.core.sizes import counted, format_size
from busbw.history.comparison_text import cell_text, placement, ratio_text
from busbw.history.run_keys import is_setting
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, nccl_version_text, percent, time_text

BAR = "█"
PARTS = " ▏▎▍▌▋▊▉"
BAR_WIDTH = 40  # characters of the longest bar
BEFORE_BAR = 43  # characters of id, date and figure
LARGEST_RATIO = 100.0  # a larger limit says nothing
DROP_ORDER = ("timing", "NCCL", "sizes", "machine", "run")
DROP_CELLS = ("p", "least to largest", "median")

# Values take a StoredRun.
RUNS: tuple[Column, ...] = (
    Column(title="id", value=lambda run: run.id),
    Column(title="when", value=lambda run: run.start, left=True),
    Column(
        title="run",
        value=lambda run: run.what or f"{run.collective} {run.counts}".rstrip(),
        left=True,
    ),
    Column(title="sizes", value=lambda run: _sizes(run), left=True),
    Column(
        title="peak GB/s",
        value=lambda run: bandwidth_text(run.peak_busbw) if run.peak_busbw else "-",
    ),
    Column(title="timing", value=lambda run: run.timing, left=True),
    Column(
        title="NCCL", value=lambda run: nccl_version_text(run.nccl) if run.nccl else "-", left=True
    ),
    Column(title="machine", value=lambda run: machine_text(run.machine), left=True),
    Column(title="", value=lambda run: _defect(run), left=True),
)
# Values take a CheckedCell.
CELLS: tuple[Column, ...] = (
    Column(title="size", value=lambda cell: format_size(cell.key.size_bytes)),
    Column(title="placement", value=lambda cell: placement(cell.key), left=True),
    Column(title="time", value=lambda cell: time_text(cell.time_s)),
    Column(title="median", value=lambda cell: time_text(cell.median_s)),
    Column(
        title="least to largest",
        value=lambda cell: f"{time_text(cell.low_s)} to {time_text(cell.high_s)}",
        left=True,
    ),
    Column(title="ratio", value=lambda cell: ratio_text(cell.ratio)),
    Column(title="p", value=lambda cell: f"{cell.p:.2g}"),
)


def listed(runs: Sequence[StoredRun], width: int | None = None) -> str:
    return aligned(RUNS, runs, width, DROP_ORDER)


def _defect(run: StoredRun) -> str:
    """`wrong data`, `incomplete`, and what is larger than the peak but less certain."""
    defect = "wrong data" if run.wrong else "" if run.complete else "incomplete"
    larger = ""
    if run.uncertain_busbw:
        larger = f"less certain: {bandwidth_text(run.uncertain_busbw)}"
    return ", ".join(filter(None, (defect, larger)))


def _sizes(run: StoredRun) -> str:
    if run.what:
        return "-"
    if run.min_bytes == run.max_bytes:
        return format_size(run.min_bytes)
    return f"{format_size(run.min_bytes)} to {format_size(run.max_bytes)}"


def plot(times: Iterable[StoredTime], width: int | None = None) -> str:
    """One bar per run, oldest first, in a plot for each machine and cell.

    `times` are the newest first. Bars begin at 0 and end at the largest busbw of their plot.
    """
    groups: dict[tuple[str, str, str, str, CellKey], list[StoredTime]] = {}
    for time in times:
        run = time.run
        group_key = (run.machine, run.collective, run.counts, run.timing, time.key)
        groups.setdefault(group_key, []).append(time)
    bar_width = BAR_WIDTH if width is None else max(1, min(BAR_WIDTH, width - BEFORE_BAR))
    return "\n".join(_plot(group, bar_width, width) for group in groups.values())


def _plot(group: Sequence[StoredTime], bar_width: int, width: int | None) -> str:
    run, key = group[0].run, group[0].key
    facts = [
        BY_NAME[run.collective].title,
        run.counts,
        cell_text(key),
        key.dtype,
        key.op,
        f"root {key.root}" if key.root >= 0 else "",
    ]
    title = f"{', '.join(filter(None, facts))}; {run.timing} timing\n{machine_text(run.machine)}\n"
    top = max((time.busbw for time in group if math.isfinite(time.busbw)), default=0.0)
    columns = (
        Column(title="id", value=lambda time: time.run.id),
        Column(title="when", value=lambda time: time.run.start, left=True),
        Column(title="GB/s", value=lambda time: bandwidth_text(time.busbw)),
        Column(title="", value=lambda time: _bar(time.busbw, top, bar_width), left=True),
    )
    return f"{wrapped(title, width)}\n{aligned(columns, list(reversed(group)))}"


def _bar(value: float, top: float, width: int) -> str:
    if not (math.isfinite(value) and top > 0):
        return ""
    eighths = round(8 * width * value / top)
    return BAR * (eighths // 8) + PARTS[eighths % 8].strip()


def checked(check: HistoryCheck, width: int | None = None) -> str:
    """A run compared with earlier ones: the conclusion, cells that may be slower, the evidence."""
    slower = [cell for cell in check.cells if cell.slower]
    shown = slower or [cell for cell in check.cells if cell.far]
    text = wrapped(f"{_verdict(check, slower)}\n{machine_text(check.machine)}\n", width)
    if shown:
        text += "\n" + aligned(CELLS, shown, width, DROP_CELLS)
    if check.basis is not HistoryBasis.NONE:
        text += wrapped(f"\n{_basis(check)}\n", width)
    return text


def _verdict(check: HistoryCheck, slower: Sequence[CheckedCell]) -> str:
    count, total = len(check.runs), counted(len(check.cells), "cell")
    last = f"the last {count} runs"
    if slower:
        return f"SLOWER  {len(slower)} of {total} than in {last}, {_largest(slower)}"
    far = [cell for cell in check.cells if cell.far]
    if far:
        text = (
            f"UNKNOWN  {len(far)} of {total} much slower than the median of {last},"
            f" {_largest(far)}, which may be chance"
        )
        return f"{text}: {runs_text(check.unusual)} unusual too" if check.unusual else text
    if check.standing is Standing.FINE:
        text = f"FINE  none of {total} is slower than in {last}"
        if check.basis is HistoryBasis.ORDER:
            return text
        return f"{text} by more than {percent(check.tolerance)}"
    if check.basis is HistoryBasis.SPREAD:
        return f"UNKNOWN  no cell is clearly slower than in {last}, but {_unsure_text(check)}"
    verb = "is" if count == 1 else "are"
    return (
        f"UNKNOWN  {counted(count, 'comparable run')} of this machine {verb} stored;"
        f" {MIN_RUNS} show large changes, {check.needed} are needed for"
        f" {percent(check.confidence)} confidence"
    )


def _largest(cells: Sequence[CheckedCell]) -> str:
    worst = max(cells, key=lambda cell: cell.ratio)
    return f"largest {ratio_text(worst.ratio)} at {cell_text(worst.key)}"


def runs_text(ids: Sequence[int]) -> str:
    """`run 9 is`, `runs 9, 12 are`."""
    if len(ids) == 1:
        return f"run {ids[0]} is"
    return f"runs {', '.join(map(str, ids))} are"


def _unsure_text(check: HistoryCheck) -> str:
    """Which cells may be slower by more than the tolerance, and by how much."""
    unsure = [cell for cell in check.cells if not cell.within(check.tolerance)]
    equal_times = sum(cell.most is None for cell in unsure)
    widest = max(unsure, key=lambda cell: cell.most or 0.0)
    text = (
        f"{len(unsure)} of {counted(len(check.cells), 'cell')} may be slower"
        f" by more than {percent(check.tolerance)}"
    )
    if widest.most is None:
        return f"{text}: their earlier times are all equal"
    limit = "by any factor"
    if widest.most < LARGEST_RATIO:
        limit = f"at most {ratio_text(widest.most)}"
    text += f", {limit} at {cell_text(widest.key)}"
    return f"{text}; earlier times of {equal_times} are all equal" if equal_times else text


def _basis(check: HistoryCheck) -> str:
    chance = (
        "the chance that a run like those before is called slower, in any cell of the sweep,"
        f" is {percent(round(check.alarm, 4))}"
    )
    if check.basis is HistoryBasis.ORDER:
        return chance
    return (
        f"judged by the spread of {len(check.runs)} runs: {chance} or less if times vary like a"
        f" normal distribution; from {check.needed} runs on that chance holds for any distribution"
    )


def changes(before: Outcome, after: Outcome) -> list[str]:
    """`NCCL 2.27.3 -> 2.28.9`, `NCCL_ALGO unset -> Ring`: what both results know and differs.

    Logs do not know what is unset.
    """
    first, second = _software(before), _software(after)
    if before.tool == after.tool == "busbw":
        names = before.environment.keys() | after.environment.keys()
        settings = sorted(filter(is_setting, names))
        first |= {name: before.environment.get(name, "unset") for name in settings}
        second |= {name: after.environment.get(name, "unset") for name in settings}
    return [
        f"{name} {value} -> {second[name]}"
        for name, value in first.items()
        if second.get(name, value) != value
    ]


def _software(result: Outcome) -> dict[str, str]:
    """Known versions by name; different versions on several hosts are joined by commas."""
    library, hosts = result.library, result.topology.hosts
    versions = {
        "NCCL": nccl_version_text(library.nccl) if library.nccl else "",
        **library.versions,
        "network": library.network,
        "driver": ", ".join(sorted({host.driver for host in hosts if host.driver})),
        "kernel": ", ".join(sorted({host.kernel for host in hosts if host.kernel})),
    }
    return {name: version for name, version in versions.items() if version}
