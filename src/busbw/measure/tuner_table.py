"""Tables for the tuner plugin of busbw-native while communicators are created.

A table has what a pattern states, or what a tuning found. Instead of a table, the plugin can also
be steered.
"""

import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from busbw.core.env import TUNER, temporarily
from busbw.core.errors import NoMeasurement
from busbw.core.pattern import ALGORITHMS, PROTOCOLS, Pattern
from busbw.core.tuner_table import TunerRule, TunerTable
from busbw.core.tuning import TUNED, TuningChoice
from busbw.engines.nccl_tuner import NcclTuner
from busbw.engines.registry import engine, torch_gpus
from busbw.host import net_plugin
from busbw.launch.control import Control

INSTALL_HINT = "install it on all hosts, or tune without it: busbw tune ... --variables"


def of_pattern(pattern: Pattern) -> tuple[TunerTable, int]:
    """The table of what a pattern states, and how many of its rows the table cannot hold.

    NCCL gives its tuner the function, the bytes and the size of the communicator. Rows that differ
    only in type or root therefore share the rule of the first one.
    """
    rules: dict[tuple[int, str, int], TunerRule] = {}
    left_out = 0
    for row in pattern.rows:
        if row.algorithm not in ALGORITHMS or row.protocol not in PROTOCOLS:
            continue
        if row.function not in TUNED:
            left_out += 1
            continue
        ranks, choice = pattern.comm(row).ranks, TuningChoice(row.algorithm, row.protocol)
        rule = TunerRule(
            ranks=ranks,
            hosts=None,
            collective=row.function,
            first=row.bytes,
            last=row.bytes,
            choice=choice,
        )
        left_out += rules.setdefault((ranks, row.function, row.bytes), rule) != rule
    return TunerTable(rules=list(rules.values())), left_out


def _library(environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """The plugin, or why this rank cannot use it."""
    if environment.get(TUNER.plugin):
        return None, f"{TUNER.plugin}={environment[TUNER.plugin]} is set on {platform.node()}"
    try:
        return net_plugin.find(), ""
    except NoMeasurement as error:
        return None, error.message


def _agreed(control: Control, environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """The plugin, or why a rank cannot use it, so that none does.

    NCCL waits forever where ranks choose differently. Collective.
    """
    library, reason = _library(environment)
    return library, next(filter(None, control.allgather(reason)), "")


@contextmanager
def asking(
    pattern: Pattern, control: Control, environment: Mapping[str, str] = os.environ
) -> Iterator[list[str]]:
    """Let NCCL's tuner ask for what the pattern states while communicators are created.

    Gives notes for the user. Collective.
    """
    table, left_out = of_pattern(pattern)
    if not table.rules:
        yield []
        return
    library, refused = _agreed(control, environment)
    if refused:
        yield [f"algorithms and protocols of the pattern were not asked for: {refused}"]
        return
    with _file(table.text()) as variables, temporarily(variables | {TUNER.plugin: str(library)}):
        notes = []
        if left_out:
            notes = [f"{left_out} rows ask for what NCCL's tuner cannot tell apart or choose"]
        yield notes


@contextmanager
def loaded(text: str, name: str, control: Control) -> Iterator[None]:
    """Communicators of engine `name` that are created meanwhile use this table; '' for none.

    Collective. NoMeasurement if a rank lacks the plugin.
    """
    if not text:
        yield
        return
    with _file(text) as variables, temporarily(variables | _plugin(name, control)):
        yield


@contextmanager
def steered(name: str, control: Control) -> Iterator[None]:
    """Communicators of engine `name` that are created meanwhile can be steered.

    Collective; raises as `loaded`.
    """
    plugin = _plugin(name, control)
    if plugin:
        NcclTuner()
    with temporarily(plugin):
        yield


def _plugin(name: str, control: Control) -> dict[str, str]:
    """The variable that names the plugin, none for an engine without NCCL."""
    if not engine(name).nccl or (name == "torch" and not torch_gpus()):
        return {}
    library, refused = _agreed(control, os.environ)
    if refused:
        raise NoMeasurement(f"NCCL's tuner plugin cannot be used: {refused}", INSTALL_HINT)
    return {TUNER.plugin: str(library)}


@contextmanager
def _file(text: str) -> Iterator[dict[str, str]]:
    """A file with the text, and the variable that names it."""
    with tempfile.TemporaryDirectory(prefix="busbw-tuner-") as folder:
        table = Path(folder, "table")
        table.write_text(text, encoding="utf-8")
        yield {TUNER.table: str(table)}
