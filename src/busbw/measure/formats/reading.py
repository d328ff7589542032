"""What the readers of nccl-tests' output share.

It has the collective that a program's name or arguments name, and the parts of a spec that follow
from rows.
"""

import contextlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from busbw.core.collectives import BY_NAME, COLLECTIVES, Collective
from busbw.core.collectives import collective as collective_row
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.errors import UsageError
from busbw.core.result import ResultRow

FORMATS = (
    "busbw reads its own JSON (busbw.result/1) and its table, the JSON of nccl-tests"
    " (-J run.json) and rccl-tests (-x FILE), and the text that they print"
)
PROGRAM = re.compile(r"([a-z_]+?)_(?:perf(?:_mpi)?|test)$")  # _test is NCCL 1's


def program_collective(program: str) -> str:
    """`all_reduce` of `./build/all_reduce_perf_mpi`; empty for other names."""
    match = PROGRAM.search(PurePosixPath(program.replace("\\", "/")).name)
    return match.group(1) if match and match.group(1) in BY_NAME else ""


def collective_of(title: str) -> str:
    """`all_reduce` of `AllReduce`; empty for other names."""
    with contextlib.suppress(UsageError):
        return collective_row(title).name
    return ""


def argument_collective(args: Sequence[str]) -> str:
    """`all_reduce` of busbw's arguments `run all_reduce -n 2`; '' if none is a collective."""
    if "run" in args:
        for arg in args:
            with contextlib.suppress(UsageError):
                return collective_row(arg).name
    return ""


def resolve(option: str | None, in_file: str, source: str) -> Collective:
    """The collective that the file or the caller's --collective names.

    `in_file` is '' for a file without its name; `source` names the file in errors. UsageError if
    neither names one, or if they differ.
    """
    name = collective_row(option).name if option else in_file
    if not name:
        known = ", ".join(row.name for row in COLLECTIVES)
        raise UsageError(
            f"{source}: it does not name the collective", f"pass the collective: one of {known}"
        )
    if in_file and name != in_file:
        raise UsageError(
            f"{source}: it is of {in_file}, --collective names {name}",
            "leave out --collective, which is for files that do not name one",
        )
    return BY_NAME[name]


def element_type(text: str) -> str:
    """The name of the dtype table for a printed type; other types stay as printed."""
    row = DTYPES.get(text.lower())
    return row.name if row else text


def series(rows: Sequence[ResultRow]) -> dict[str, str]:
    """SweepSpec's datatype, op and root as the rows show them.

    Each is the value that the rows share, or `all`. It is left out if rows have none.
    """
    values = {
        "datatype": {row.dtype for row in rows},
        "op": {row.op for row in rows},
        "root": {str(row.root) for row in rows},
    }
    fields = {}
    for field, of_rows in values.items():
        distinct = of_rows - {"", "-1"}
        if distinct:
            fields[field] = distinct.pop() if len(distinct) == 1 else "all"
    return fields


def full_time_s(
    collective: Collective, row: ResultRow, ranks: int, algbw: float, otherwise: float
) -> float:
    """The seconds that follow from an algbw (bytes/s), for tables that show another time.

    `otherwise` is returned if the bandwidth was printed as 0.
    """
    if algbw <= 0:
        return otherwise
    dtype = DTYPES.get(row.dtype)
    moved = row.count * collective.algbw_multiple(ranks) * dtype.itemsize if dtype and ranks else 0
    return (moved or row.size_bytes) / algbw
