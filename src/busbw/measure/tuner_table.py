"""Algorithm and protocol of single collectives, as a pattern states them, for the tuner of busbw-native."""

import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from busbw.core.env import TUNER
from busbw.core.errors import NoMeasurement
from busbw.core.pattern import ALGORITHMS, PROTOCOLS, Pattern
from busbw.host import net_plugin
from busbw.launch.control import Control

FUNCTIONS = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")  # NCCL's numbers; it asks a tuner for no others


def lines(pattern: Pattern) -> tuple[list[str], int]:
    """The lines of the table, `RANKS FUNCTION BYTES ALGORITHM PROTOCOL` in NCCL's numbers, and how many rows it cannot hold.

    NCCL tells its tuner function, bytes and the communicator's size, so rows that differ in type or root alone share the first one's line.
    """
    table: dict[tuple[int, int, int], tuple[int, int]] = {}
    left_out = 0
    for row in pattern.rows:
        if row.algorithm not in ALGORITHMS or row.protocol not in PROTOCOLS:
            continue
        if row.function not in FUNCTIONS:
            left_out += 1
            continue
        key = (pattern.comm(row).ranks, FUNCTIONS.index(row.function), row.bytes)
        wanted = (ALGORITHMS.index(row.algorithm), PROTOCOLS.index(row.protocol))
        left_out += table.setdefault(key, wanted) != wanted
    return [" ".join(map(str, (*key, *wanted))) for key, wanted in table.items()], left_out


def _library(environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """The plugin, or why this rank cannot use it."""
    if environment.get(TUNER.plugin):
        return None, f"{TUNER.plugin}={environment[TUNER.plugin]} is set on {platform.node()}"
    try:
        return net_plugin.find(), ""
    except NoMeasurement as error:
        return None, error.message


@contextmanager
def asking(pattern: Pattern, control: Control, environment: Mapping[str, str] = os.environ) -> Iterator[list[str]]:
    """Let NCCL's tuner ask for what the pattern states while communicators are made; gives notes for the user. Collective.

    All ranks or none do, as NCCL waits forever where ranks choose differently.
    """
    wanted, left_out = lines(pattern)
    if not wanted:
        yield []
        return
    library, reason = _library(environment)
    refused = next(filter(None, control.allgather(reason)), "")
    if refused:
        yield [f"algorithms and protocols of the pattern were not asked for: {refused}"]
        return
    with tempfile.TemporaryDirectory(prefix="busbw-tuner-") as folder:
        table = Path(folder, "table")
        table.write_text("".join(f"{line}\n" for line in wanted), encoding="ascii")
        os.environ |= {TUNER.plugin: str(library), TUNER.table: str(table)}
        try:
            yield [f"{left_out} rows ask for what NCCL's tuner cannot tell apart or choose"] if left_out else []
        finally:
            for name in (TUNER.plugin, TUNER.table):
                os.environ.pop(name, None)
