"""The history as text: the list of runs, one size over time, and a run beside the last ones."""

import math
from collections.abc import Iterable, Sequence

from busbw.core.cells import CellKey
from busbw.core.collectives import BY_NAME
from busbw.core.history import Check, CheckedCell, Standing, StoredRun, StoredTime
from busbw.core.sizes import format_size
from busbw.views.comparison import aligned, number, percent, place, ratio_text
from busbw.views.words import bandwidth_text, nccl_version_text, time_text

BAR = "█"
PARTS = " ▏▎▍▌▋▊▉"
BAR_WIDTH = 40


def listed(runs: Sequence[StoredRun]) -> str:
    """A line for each run: id, when, collective, sizes, peak busbw, NCCL, machine."""
    lines = [("id", "when", "collective", "sizes", "peak GB/s", "timing", "NCCL", "machine", "")]
    for run in runs:
        nccl = nccl_version_text(run.nccl) if run.nccl else "-"
        sizes = format_size(run.min_bytes) + (f" to {format_size(run.max_bytes)}" if run.max_bytes != run.min_bytes else "")
        peak = bandwidth_text(run.peak_busbw)
        lines.append((str(run.id), run.start, run.collective, sizes, peak, run.timing, nccl, run.machine, _state(run)))
    return aligned(lines, right={0, 4})


def _state(run: StoredRun) -> str:
    return "wrong data" if run.wrong else "" if run.complete else "did not end"


def plot(times: Iterable[StoredTime]) -> str:
    """One bar a run, oldest above, for each machine and cell there is; bars begin at 0 and end at the largest of their plot."""
    groups: dict[tuple[str, str, str, CellKey], list[StoredTime]] = {}
    for time in times:
        groups.setdefault((time.run.machine, time.run.collective, time.run.timing, time.key), []).append(time)
    return "\n".join(_plot(group) for group in groups.values())


def _plot(group: Sequence[StoredTime]) -> str:
    first = group[0]
    key = first.key
    facts = [BY_NAME[first.run.collective].title, place(key), key.dtype, key.op, f"root {key.root}" if key.root >= 0 else ""]
    title = ", ".join(fact for fact in facts if fact)
    top = max((time.busbw for time in group if math.isfinite(time.busbw)), default=0.0)
    lines = [
        (str(time.run.id), time.run.start, bandwidth_text(time.busbw), "GB/s", _bar(time.busbw, top)) for time in reversed(group)
    ]  # fmt: skip
    return f"{title}; {first.run.timing} timing\n{first.run.machine}\n\n{aligned(lines, right={0, 2})}"


def _bar(value: float, top: float) -> str:
    if not (math.isfinite(value) and top > 0):
        return ""
    eighths = round(8 * BAR_WIDTH * value / top)
    return BAR * (eighths // 8) + PARTS[eighths % 8].strip()


def checked(check: Check) -> str:
    """What a run is beside the last ones: the conclusion first, then the cells that are slower, then what this rests on."""
    count, total = len(check.runs), number(len(check.cells))
    slower = [cell for cell in check.cells if cell.slower]
    if check.standing is Standing.UNKNOWN:
        verdict = (
            f"UNKNOWN  {count} comparable runs of this machine are stored, {check.needed} are needed to be {percent(check.confidence)} sure"
        )
    elif slower:
        worst = max(slower, key=lambda cell: cell.ratio)
        verdict = f"SLOWER  {len(slower)} of {total} than in the last {count} runs, largest {ratio_text(worst.ratio)} at {place(worst.key)}"
    else:
        verdict = f"FINE  none of {total} is slower than in the last {count} runs"
    text = f"{verdict}\n{check.machine}\n"
    if slower:
        titles = ("size", "placement", "time", "median", "least to largest", "ratio", "p")
        text += "\n" + aligned([titles, *map(_cell, slower)], right={0, 2, 3, 5, 6})
    if check.standing is not Standing.UNKNOWN:
        text += f"\na run like those before is called slower, in any cell of the sweep, with a chance of {percent(round(check.alarm, 4))}\n"
    return text


def _cell(cell: CheckedCell) -> tuple[str, ...]:
    size, _, placement = place(cell.key).partition("B ")
    spread = f"{time_text(cell.low_s)} to {time_text(cell.high_s)}"
    return f"{size}B", placement, time_text(cell.time_s), time_text(cell.median_s), spread, ratio_text(cell.ratio), f"{cell.p:.2g}"
