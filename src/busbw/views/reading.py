"""What the readers of other tools' output share: the collective behind a program's name, and a spec from what the rows say."""

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from busbw.core.collectives import BY_NAME, COLLECTIVES, Collective
from busbw.core.collectives import collective as collective_row
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.env import shown
from busbw.core.errors import UsageError
from busbw.core.result import Row

FORMATS = "busbw reads its own JSON (busbw.result/1), nccl-tests' JSON (-J run.json) and the text that nccl-tests prints"
PROGRAM = re.compile(r"([a-z_]+?)_perf(?:_mpi)?$")


def program_collective(program: str) -> str:
    """`all_reduce` of `./build/all_reduce_perf_mpi`; empty when the name is none of nccl-tests'."""
    match = PROGRAM.search(PurePosixPath(program.replace("\\", "/")).name)
    return match.group(1) if match and match.group(1) in BY_NAME else ""


def argument_collective(args: Sequence[str]) -> str:
    """`all_reduce` of the arguments `run all_reduce -n 2` of busbw; empty where none of them is a collective."""
    if "run" in args:
        for arg in args:
            with contextlib.suppress(UsageError):
                return collective_row(arg).name
    return ""


def resolve(given: str | None, found: str, what: str) -> Collective:
    """The collective found, else the one the caller names; UsageError where there is neither, or they differ."""
    named = collective_row(given).name if given else found
    if not named:
        known = ", ".join(row.name for row in COLLECTIVES)
        raise UsageError(f"{what}: nothing in it says which collective was run", f"pass the collective: one of {known}")
    if found and named != found:
        raise UsageError(f"{what}: it says {found}, and --collective {named}", "leave out --collective, which is for files that do not say")
    return BY_NAME[named]


def element_type(word: str) -> str:
    """The name of the dtype table for a printed type; a type that is not in it stays as printed."""
    row = DTYPES.get(word.lower())
    return row.name if row else word


def series(rows: Sequence[Row]) -> dict[str, str]:
    """SweepSpec's datatype, op and root as the rows show them: the one they share, or `all`; nothing where there is none."""
    found = {"datatype": [row.dtype for row in rows], "op": [row.op for row in rows], "root": [str(row.root) for row in rows]}
    fields = {}
    for field, values in found.items():
        distinct = set(values) - {"", "-1"}
        if distinct:
            fields[field] = distinct.pop() if len(distinct) == 1 else "all"
    return fields


def full_time_s(collective: Collective, row: Row, ranks: int, algbw: float, otherwise: float) -> float:
    """Seconds behind an algbw (bytes/s), for tables that show another time; `otherwise` when the bandwidth was printed as 0."""
    if algbw <= 0:
        return otherwise
    dtype = DTYPES.get(row.dtype)
    moved = row.count * collective.algbw_units(ranks) * dtype.itemsize if dtype and ranks else 0
    return (moved or row.size_bytes) / algbw


def masked(pairs: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a dict in their order; values of names that do not steer communication are masked."""
    environment = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        environment[name] = shown(name, value)
    return environment
