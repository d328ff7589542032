"""Keeps finished runs in the history."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from busbw.cli.streams import print_err
from busbw.core.errors import BusbwError
from busbw.core.result import Outcome
from busbw.measure.record import RunRecord

LOG = logging.getLogger(__name__)
WAIT_S = 5.0  # for another writer


@contextmanager
def finishing(record: RunRecord, finish: Callable[[Outcome], None]) -> Iterator[None]:
    """Do `finish` with the complete run of the block, also where the run's own file could not be
    written: then that is the error, and one of `finish` is a note.
    """
    try:
        yield
    except BusbwError as error:
        if error is record.problem and record.result is not None and record.result.complete:
            try:
                finish(record.result)
            except BusbwError as other:
                print_err(f"note: {other.message}")
        raise
    if record.result is not None and record.result.complete:
        finish(record.result)


def keep(result: Outcome | None, *, asked: bool) -> None:
    """Keep a run in the history if it has ended and is `asked` for; ranks without its rows keep
    nothing. A failure is a note: it changes neither the result nor the exit code.
    """
    if result is None or not result.complete or not asked:
        return
    try:
        _store(result)
    except Exception as error:  # noqa: BLE001 - the run has been measured, whatever fails here
        why = error.message if isinstance(error, BusbwError) else f"{type(error).__name__}: {error}"
        print_err(f"note: the run is not in the history: {why} (--no-history leaves it out)")


def _store(result: Outcome) -> None:
    # SQLite takes 10 ms to import, which `busbw run --help` need not pay
    from busbw.cli.config.history import history_environment
    from busbw.history.place import kept_in
    from busbw.history.store import opened
    from busbw.report.registry import kind

    file = kept_in(history_environment())
    if file is None:
        return
    with opened(file, create=True, wait_s=WAIT_S) as history:
        id = history.keep(result, kind(result).removeprefix("a "))
    LOG.info("kept as run %d of %s", id, file)
