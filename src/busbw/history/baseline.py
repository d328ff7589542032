"""The earlier runs that a run is compared with."""

from collections.abc import Sequence
from itertools import islice

import msgspec

from busbw.core.cells import CellKey, cells, medians
from busbw.core.result import Result
from busbw.history.run_keys import alike
from busbw.history.store import History


def baseline(
    history: History, result: Result, last: int, without: Sequence[Result] = ()
) -> dict[int, dict[CellKey, float]]:
    """Seconds by run and cell of the newest `last` comparable runs that have every cell of the
    result.

    The result itself does not count, nor those in `without`.
    """
    wanted = {msgspec.structs.replace(key, cycle=0) for key, _ in cells(result)}
    left_out = {history.id_of(one) for one in (result, *without)}
    comparable = (
        run
        for run in history.runs(collective=result.spec.collective)
        if run.id not in left_out and alike(run, result)
    )
    timed = (
        (run.id, medians((time.key, time.time_s) for time in history.times([run])))
        for run in comparable
    )
    return dict(islice(((run, times) for run, times in timed if wanted <= times.keys()), last))
