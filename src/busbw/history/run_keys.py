"""What the history stores about a result, and which stored runs it can be compared with."""

import hashlib
from datetime import datetime

from busbw.core import json_codec
from busbw.core.cells import headline, timing
from busbw.core.history import StoredRun, machine
from busbw.core.result import Result


def digest(result: Result) -> str:
    """SHA-256 of the result's content as hexadecimal digits.

    The name and the white space of its file do not change it.
    """
    return hashlib.sha256(json_codec.encode(result)).hexdigest()


def stored(result: Result, now: datetime) -> StoredRun:
    """The facts of a result for listing and search. Its id is 0 until it is stored."""
    sizes = [row.size_bytes for row in result.rows]
    top = headline(result)
    return StoredRun(
        id=0,
        start=_date_text(result.start, now),
        machine=machine(result),
        collective=result.spec.collective,
        nccl=result.library.nccl,
        timing=timing(result),
        min_bytes=min(sizes, default=0),
        max_bytes=max(sizes, default=0),
        peak_busbw=top.busbw if top else 0.0,
        complete=result.complete,
        wrong=result.wrong(),
        counts=_counts_source(result),
    )


def _date_text(start: str, now: datetime) -> str:
    try:
        date = datetime.fromisoformat(start)
    except ValueError:
        date = now
    return date.strftime("%Y-%m-%d %H:%M:%S")


def _counts_source(result: Result) -> str:
    return result.traffic.source if result.traffic else ""


def alike(run: StoredRun, result: Result) -> bool:
    """Whether a stored run is comparable: complete, without wrong data, and of the same machine,
    collective, bytes and timing.
    """
    return (
        run.complete
        and not run.wrong
        and run.machine == machine(result)
        and run.collective == result.spec.collective
        and run.timing == timing(result)
        and run.counts == _counts_source(result)
    )
