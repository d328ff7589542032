"""The kinds of files that busbw writes besides measurements (core.result): the title, structure and
text of each; and those that other benchmarks of transfers print.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from xml.etree.ElementTree import Element

import msgspec

from busbw.check import changes_text
from busbw.check import text as check_text
from busbw.check.changes import ChangeReport
from busbw.check.cluster_text import cluster_text
from busbw.check.command import text as command_text
from busbw.check.doctor import text as launch_text
from busbw.check.trend import text as trend_text
from busbw.check.trend.types import TrendReport
from busbw.check.types import CheckReport, ClusterReport, CommandReport, Diagnosis
from busbw.core import json_codec, pattern, tuner_table
from busbw.core.comparison import SCHEMA as COMPARISON
from busbw.core.comparison import Comparison
from busbw.core.errors import UsageError
from busbw.core.extensions import added
from busbw.core.link_samples import WatchInterval
from busbw.core.release_matrix import ReleaseMatrix
from busbw.history import comparison_text, release_matrix
from busbw.job import types as job_text
from busbw.job.live import text as live_text
from busbw.job.live.types import JobInterval
from busbw.job.types import JobReport
from busbw.link import text as link_text
from busbw.link.types import LinkReport, SuspectReport
from busbw.model import explanation_text, prediction_text
from busbw.model.reference.curves import ReferenceTable
from busbw.model.types import Explanation, PatternPrediction, Prediction
from busbw.moe import estimate as moe_estimate
from busbw.moe.estimate import MoeEstimate
from busbw.pattern import text as pattern_text
from busbw.reference import comparison as reference
from busbw.reference import lists
from busbw.transfer import read as transfer_reader
from busbw.transfer import text as transfer_text
from busbw.transfer.types import TransferReport
from busbw.tune import text as tune_text
from busbw.tune.types import Tuning
from busbw.watch import text as watch_text

Text = Callable[[Any, int | None], str]
Interval = TypeVar("Interval", bound=msgspec.Struct)
# The first of several JSON lines may have a type too.
_SCHEMA = re.compile(
    rb'\s*\{\s*(?:"type"\s*:\s*"header"\s*,\s*)?"schema"\s*:\s*"(busbw\.[a-z-]+/\d+)"'
)
SNAPSHOT, PATTERN, TUNER_TABLE = "Snapshot", "Pattern", "Tuner table"
TRANSFERS = "Benchmark of transfers"
BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class FileKind:
    """One kind of file: its title, its structure, and its text.

    `text` takes the structure and the width of the terminal, None for a file. A file of a watch has
    `lines`, one for each interval, and `text` takes them all. `parts` are those of a report's
    section, None for kinds in other_reports.PARTS and for those that are shown as text.
    """

    title: str
    structure: type[msgspec.Struct]
    text: Text
    schema: str = ""
    lines: bool = False
    parts: Callable[[Any], list[Element]] | None = None

    @property
    def name(self) -> str:
        """The value of the key `schema` in such a file."""
        return self.schema or str(self.structure.__struct_config__.tag)


def _without_version(schema: str) -> str:
    return schema.partition("/")[0]


KINDS: tuple[FileKind, ...] = (
    FileKind("Comparison", Comparison, comparison_text.text, COMPARISON),
    FileKind("Comparison of NCCL releases", ReleaseMatrix, release_matrix.text),
    FileKind("Link test", LinkReport, link_text.render),
    FileKind("Search for slow hosts", SuspectReport, link_text.render_suspects),
    FileKind("Link counters", WatchInterval, watch_text.saved, lines=True),
    FileKind("Check of a machine", CheckReport, check_text.text),
    FileKind("Check of several machines", ClusterReport, cluster_text),
    FileKind("Changes between checks", ChangeReport, changes_text.text),
    FileKind("Check of a command line", CommandReport, command_text.text),
    FileKind("Check of a launch", Diagnosis, launch_text.text),
    FileKind("Check of a job", JobReport, job_text.text),
    FileKind("Watch of a job", JobInterval, live_text.saved, lines=True),
    FileKind(TRANSFERS, TransferReport, transfer_text.render),
    FileKind("Trend of errors", TrendReport, trend_text.text),
    FileKind("Tuning", Tuning, lambda tuning, width: tune_text.text(tuning, {}, width)),
    FileKind("Prediction", Prediction, prediction_text.text),
    FileKind("Prediction of an application", PatternPrediction, prediction_text.pattern_text),
    FileKind("Estimate of a mixture of experts", MoeEstimate, moe_estimate.text),
    FileKind("Explanation", Explanation, explanation_text.text),
    FileKind("Table of reference curves", ReferenceTable, lists.table_text),
    FileKind(
        "Comparison with a reference", reference.ReferenceComparison, reference.comparison_text
    ),
)
_BY_SCHEMA = {kind.name: kind for kind in KINDS}
_TITLES = {_without_version(kind.name): kind.title for kind in KINDS} | {
    "busbw.host": SNAPSHOT,
    _without_version(pattern.SCHEMA): PATTERN,
}
_RESULTS = ("busbw.result", "busbw.replay", "busbw.moe")


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a file: its title, its text by the width of the terminal, and its structure.

    `facts` are those of a snapshot's machine. `intervals` are those of the file of a watch; `held`
    is the last. `parts` are those of its section in a report; None if report.other_reports knows
    them.
    """

    title: str
    text: Callable[[int | None], str]
    held: msgspec.Struct | pattern.Pattern
    intervals: Sequence[msgspec.Struct] = ()
    facts: Mapping[str, str] | None = None
    parts: Callable[[], list[Element]] | None = None

    def intervals_of(self, structure: type[Interval]) -> list[Interval]:
        """Those of a watch of this kind; none for another file."""
        return [one for one in self.intervals if isinstance(one, structure)]

    @classmethod
    def of_pattern(cls, record: pattern.Pattern) -> "FileContent":
        """What an application sent."""
        return cls(PATTERN, lambda width: pattern_text.table(record, width), record)


def _schema(data: bytes) -> str:
    match = _SCHEMA.match(data)
    return match.group(1).decode() if match else ""


def title(data: bytes) -> str | None:
    """The title of a file of busbw of any version, by its first bytes.

    None for measurements, and for other files that busbw did not write, but TRANSFERS for what
    nixlbench and ucx_perftest print.
    """
    if data.startswith(tuner_table.HEADER.encode()):
        return TUNER_TABLE
    if transfer_reader.program(data):
        return TRANSFERS
    schema = _schema(data)
    kind = _kind_of_extension(schema)
    return kind.title if kind else _TITLES.get(_without_version(schema))


def _kind_of_extension(schema: str) -> FileKind | None:
    name = _without_version(schema)
    if not name or name in _TITLES or name in _RESULTS:
        return None
    kinds: tuple[FileKind, ...] = added("files")
    return next((kind for kind in kinds if _without_version(kind.name) == name), None)


def read(data: bytes, source: str) -> FileContent | None:
    """The document in `data`, None for a file of another kind; UsageError, which names `source`,
    for a broken one.

    A watch has a line for each interval; the document is the last interval.
    """
    if data.startswith(tuner_table.HEADER.encode()):
        table = tuner_table.parse(data.decode("utf-8", "replace"), source)
        return FileContent(TUNER_TABLE, lambda width: tune_text.table_text(table, width), table)
    transfers = transfer_reader.read(data, source)
    if transfers is not None:
        return FileContent(
            TRANSFERS, lambda width: transfer_text.render(transfers, width), transfers
        )
    schema = _schema(data)
    kind = _BY_SCHEMA.get(schema) or _kind_of_extension(schema)
    if kind is None or kind.name != schema:
        return None
    if kind.lines:
        return _watch(data, source, kind)
    try:
        content = json_codec.decode(data, kind.structure)
    except BROKEN as error:
        raise _broken(source, kind, error) from error
    parts = partial(kind.parts, content) if kind.parts else None
    return FileContent(kind.title, lambda width: kind.text(content, width), content, parts=parts)


def _watch(data: bytes, source: str, kind: FileKind) -> FileContent:
    """A watch: a line for each interval, with its time."""
    lines = [line for line in data.splitlines() if line.strip()]
    try:
        intervals: list[Any] = [json_codec.decode(line, kind.structure) for line in lines]
        for watched in intervals:
            datetime.fromisoformat(watched.at)
    except (*BROKEN, ValueError) as error:
        raise _broken(source, kind, error) from error
    return FileContent(
        kind.title, lambda width: kind.text(intervals, width), intervals[-1], intervals
    )


def _broken(source: str, kind: FileKind, error: Exception) -> UsageError:
    return UsageError(
        f"{source}: {kind.name}: {error}", "give a file that busbw wrote; it must be complete"
    )
