"""Whether a run is slower than earlier runs on its machine."""

import itertools
import math
import statistics
from collections.abc import Mapping

from busbw.core.cells import CellKey, cells, medians, usable
from busbw.core.history import Check, CheckedCell, Standing, machine
from busbw.core.result import Result
from busbw.stats.judging import RELEVANT
from busbw.stats.rank_tests import level
from busbw.stats.run_tests import ROUNDING, fewest_chance, sweep_test


def needed(confidence: float) -> int:
    """The earlier runs needed for this confidence: 19 for 95 %. Any of n runs and a new one is equally likely to be the slowest."""
    return next(count for count in itertools.count(2) if fewest_chance(count, 1, two_sided=False) <= level(confidence))


def check(result: Result, earlier: Mapping[int, Mapping[CellKey, float]], confidence: float) -> Check:
    """Whether any cell of the run is slower than in `earlier` runs on its machine (times in seconds by run and cell).

    Runs without all of its cells are ignored. If nothing changed, each of these runs is equally likely to be the most extreme, so the
    probability of a false alarm over the whole sweep is `alarm`, whatever the distribution of times.
    """
    new = {key: time_s for key, time_s in medians((key, figure.time_s) for key, figure in cells(result)).items() if usable(time_s)}
    runs = {run: times for run, times in earlier.items() if all(usable(times.get(key, 0.0)) for key in new)}
    enough = bool(new) and len(runs) >= needed(confidence)
    logs = [[math.log(times[key]) for times in [*runs.values(), new]] for key in new]
    ps = sweep_test(logs, len(runs), two_sided=False) if runs else [1.0] * len(new)
    checked = []
    for (key, time_s), p in zip(new.items(), ps, strict=True):
        times = [run[key] for run in runs.values()] or [time_s]
        middle = statistics.median(times)
        slower = enough and p <= level(confidence) and time_s >= middle * (1 + RELEVANT)
        spread = {"median_s": middle, "low_s": min(times), "high_s": max(times)}
        checked.append(CheckedCell(key=key, time_s=time_s, **spread, p=p, slower=slower))
    standing = Standing.SLOWER if any(cell.slower for cell in checked) else Standing.FINE if enough else Standing.UNKNOWN
    alarm = math.floor(level(confidence) * (len(runs) + 1) + ROUNDING) / (len(runs) + 1)
    return Check(machine(result), list(runs), needed(confidence), confidence, alarm, checked, standing)
