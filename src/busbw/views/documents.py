"""Everything that busbw writes besides measurements (core.result): how it is called, and its text."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from busbw.core import comparison as compared
from busbw.core import pattern, tuner_table, wire
from busbw.core.checking import CheckReport, ClusterReport, CommandReport, Diagnosis
from busbw.core.comparison import Comparison
from busbw.core.errors import UsageError
from busbw.core.linking import LinkReport, SuspectReport
from busbw.core.prediction import Explanation, Ideals, PatternPrediction, Prediction
from busbw.core.running import JobReport
from busbw.core.states_plan import StatesPlan
from busbw.core.trending import TrendReport
from busbw.core.tuning import Tuning
from busbw.core.watching import Watched
from busbw.views import (
    checks,
    command_lines,
    comparison,
    explanation,
    ideal,
    job,
    launch_doctor,
    link,
    prediction,
    states_plan,
    trend,
    tuning,
    watch,
)

Text = Callable[[Any, int | None], str]
# In files of JSON lines, the first of them may have a type too.
_SCHEMA = re.compile(rb'\s*\{\s*(?:"type"\s*:\s*"header"\s*,\s*)?"schema"\s*:\s*"(busbw\.[a-z-]+/\d+)"')
SNAPSHOT, PATTERN, TUNER_TABLE = "Snapshot", "Pattern", "Tuner table"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file: its title, its structure, and its text for a terminal of some width (None for a file)."""

    title: str
    structure: type[msgspec.Struct]
    text: Text
    schema: str = ""

    @property
    def name(self) -> str:
        """The value of its key `schema`."""
        return self.schema or str(self.structure.__struct_config__.tag)


def _without_version(schema: str) -> str:
    return schema.partition("/")[0]


KINDS: tuple[Kind, ...] = (
    Kind("Comparison", Comparison, comparison.text, compared.SCHEMA),
    Kind("Link test", LinkReport, link.render),
    Kind("Search for slow hosts", SuspectReport, link.render_suspects),
    Kind("Link counters", Watched, watch.table),
    Kind("Check of a machine", CheckReport, checks.text),
    Kind("Check of several machines", ClusterReport, checks.cluster_text),
    Kind("Check of a command line", CommandReport, command_lines.text),
    Kind("Check of a launch", Diagnosis, launch_doctor.text),
    Kind("Check of a job", JobReport, job.text),
    Kind("Trend of errors", TrendReport, trend.text),
    Kind("Tuning", Tuning, lambda found, width: tuning.text(found, {}, width)),
    Kind("Memory plan", StatesPlan, lambda plan, width: states_plan.text(plan, "", width)),
    Kind("Ideal", Ideals, ideal.text),
    Kind("Prediction", Prediction, prediction.text),
    Kind("Prediction of an application", PatternPrediction, prediction.pattern_text),
    Kind("Explanation", Explanation, explanation.text),
)
BY_SCHEMA = {kind.name: kind for kind in KINDS}
_TITLES = {_without_version(kind.name): kind.title for kind in KINDS} | {"busbw.host": SNAPSHOT, _without_version(pattern.SCHEMA): PATTERN}


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds: its title, its structure if views know it, and its text by the width of the terminal."""

    title: str
    text: Callable[[int | None], str]
    held: msgspec.Struct | None = None


def _schema(data: bytes) -> str:
    found = _SCHEMA.match(data)
    return found.group(1).decode() if found else ""


def title(data: bytes) -> str | None:
    """What a file of busbw is, by its first bytes and in any version; None for measurements, and for what busbw did not write."""
    if data.startswith(tuner_table.HEADER.encode()):
        return TUNER_TABLE
    return _TITLES.get(_without_version(_schema(data)))


def read(data: bytes, source: str) -> Document | None:
    """The document in `data`, None for a file of another kind; UsageError, which names `source`, for a broken one.

    Counters of links have a line for each interval: their text is the last interval's.
    """
    if data.startswith(tuner_table.HEADER.encode()):
        table = tuner_table.parse(data.decode("utf-8", "replace"), source)
        return Document(TUNER_TABLE, lambda width: tuning.table_text(table, width), table)
    its = BY_SCHEMA.get(_schema(data))
    if its is None:
        return None
    lines = [line for line in data.splitlines() if line.strip()] if its.structure is Watched else [data]
    try:
        held = [wire.decode(line, its.structure) for line in lines][-1]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{source}: {its.name}: {error}", "give a file that busbw wrote; it must be complete") from error
    head = f"the last of {len(lines)} intervals\n" if len(lines) > 1 else ""
    return Document(its.title, lambda width: head + its.text(held, width), held)
