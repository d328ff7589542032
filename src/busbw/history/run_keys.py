"""What the history stores about a result, and which stored runs it can be compared with."""

import hashlib
import re
from datetime import datetime
from typing import Any

from busbw.core import json_codec
from busbw.core.cells import headline, timing
from busbw.core.history import StoredRun, machine
from busbw.core.result import Outcome, Result

SIM = "sim"  # the engine whose parameters stand where others have versions
# other variables name processes and paths, which differ from run to run
_SETTING = re.compile(r"NCCL_|UCX_|OMPI_MCA_(btl|coll|pml)")
# among these, the files, addresses and logging of one run
_OF_ONE_RUN = re.compile(
    r"NCCL_(DEBUG\w*|WARN_ENABLE_DEBUG_INFO|\w*DUMP\w*|COMM_ID|HOSTID|RAS_ADDR|SET_THREAD_NAME)"
    r"|UCX_(LOG|STATS)_\w*|OMPI_MCA_\w*_verbose"
)


def digest(result: Outcome) -> str:
    """SHA-256 of the result's content as hexadecimal digits.

    The name and the white space of its file do not change it.
    """
    return hashlib.sha256(json_codec.encode(result)).hexdigest()


def stored(result: Outcome, now: datetime, what: str = "") -> StoredRun:
    """The facts of a result for lists and search, with id 0. `what` names one that is no sweep."""
    facts = _sweep_facts(result) if isinstance(result, Result) else {"what": what}
    return StoredRun(
        id=0,
        start=_date_text(result.start, now),
        machine=machine(result),
        nccl=result.library.nccl,
        complete=result.complete,
        wrong=result.wrong(),
        settings=settings(result),
        **facts,
    )


def _sweep_facts(result: Result) -> dict[str, Any]:
    sizes = [row.size_bytes for row in result.rows]
    top = headline(result)
    return {
        "collective": result.spec.collective,
        "timing": timing(result),
        "min_bytes": min(sizes, default=0),
        "max_bytes": max(sizes, default=0),
        "peak_busbw": top.busbw if top else 0.0,
        "counts": result.traffic.source if result.traffic else "",
    }


def is_setting(variable: str) -> bool:
    """Whether the variable of NCCL, UCX or Open MPI changes how data moves."""
    return bool(_SETTING.match(variable)) and not _OF_ONE_RUN.fullmatch(variable)


def settings(result: Outcome) -> str:
    """The variables of NCCL, UCX and Open MPI that the result was measured with, and the parameters
    of the sim engine but its seed, with which runs vary.
    """
    values = {name: value for name, value in result.environment.items() if is_setting(name)}
    if result.library.engine == SIM:
        values |= result.library.versions
        values.pop("seed", None)
    return " ".join(f"{name}={value}" for name, value in sorted(values.items()))


def _date_text(start: str, now: datetime) -> str:
    try:
        date = datetime.fromisoformat(start)
    except ValueError:
        date = now
    return date.strftime("%Y-%m-%d %H:%M:%S")
