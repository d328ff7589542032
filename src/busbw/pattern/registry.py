"""The formats that can be read, how each is recognized, and what it lacks.

`read` makes the record of a job from its files; `load` takes their names: single files, stdin, or
all files of a directory.
"""

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from busbw.core.errors import UsageError, unknown
from busbw.core.given_file import refuse_device
from busbw.core.pattern import SCHEMA, Pattern
from busbw.pattern import graph_replays, pattern_lines, rank_folders
from busbw.pattern.collector import ORDER_LIMIT, Collector
from busbw.pattern.pattern_builder import pattern
from busbw.pattern.readers import (
    chakra,
    chakra_json,
    execution_trace,
    flight_recorder,
    inspector,
    kineto,
    nccl_log,
    pattern_csv,
    profiler,
    simai,
    torchcomms_log,
)
from busbw.pattern.source import PatternSource, opened
from busbw.pattern.training import rank_files
from busbw.pattern.unfinished import CAPTURED, has_ranks

RECORD = "record"


@dataclass(frozen=True, slots=True)
class PatternFormat:
    """A format of logs, traces or dumps."""

    name: str
    title: str
    made_by: str
    has: str
    lacks: str
    recognizes: Callable[[bytes], bool]  # takes a file's first bytes
    read: Callable[[PatternSource, Collector], None]  # adds what is in a file to a collector


# The first that recognizes a file reads it: those with the clearest marks are first.
FORMATS: tuple[PatternFormat, ...] = (
    PatternFormat(
        "profiler",
        "Files of busbw's profiler plugin",
        "`busbw capture`",
        "every call in order, type, root, streams, groups, communicators, algorithm, protocol,"
        " channels; with --timed times on the GPU",
        "operator; replays of CUDA graphs that use no network",
        profiler.recognizes,
        profiler.read,
    ),
    PatternFormat(
        "pattern-csv",
        "AIBooster's pattern.csv",
        "AIBooster's NCCL pattern analyzer; `busbw show --format pattern-csv`",
        "distinct calls: count, type, ranks, algorithm, protocol, predicted time",
        "order, communicators, operator, root, measured times",
        pattern_csv.recognizes,
        pattern_csv.read,
    ),
    PatternFormat(
        "clog",
        "torchcomms' clog, V1",
        "`torchcomms.hooks.clog`",
        "every call in order, replays of CUDA graphs, type, operator, root, communicators, the"
        " host's times in milliseconds",
        "times on the GPU, algorithm and protocol",
        torchcomms_log.recognizes,
        torchcomms_log.read,
    ),
    PatternFormat(
        "inspector",
        "NCCL Inspector's JSON, v4.0 to v4.3",
        "`NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1`",
        "bytes, times on the GPU, communicators, from v4.2 on algorithm, protocol and how many"
        " calls were dropped",
        "type, operator, root, the order between communicators, messages below 8192 bytes by"
        " default",
        inspector.recognizes,
        inspector.read,
    ),
    PatternFormat(
        "flight-recorder",
        "PyTorch's Flight Recorder, 2.0 to 2.10",
        "`TORCH_FR_BUFFER_SIZE=20000`, and a dump",
        "the last calls in order, type, communicators; with TORCH_NCCL_ENABLE_TIMING=1 times on"
        " the GPU",
        "operator, root, algorithm, protocol, calls that the ring buffer lost",
        flight_recorder.recognizes,
        flight_recorder.read,
    ),
    PatternFormat(
        "kineto",
        "Trace of torch.profiler",
        '`prof.export_chrome_trace("trace.json.gz")`',
        "calls in order, type, communicators, times on the GPU; the time of all kernels, and of"
        " those that communicate by their names; of inference servers the steps by phase",
        "operator, in most releases root, algorithm and protocol; of CUDA graphs and of other"
        " libraries than NCCL the calls: their kernels are counted",
        kineto.recognizes,
        kineto.read,
    ),
    PatternFormat(
        "execution-trace",
        "PyTorch's execution trace, 1.0.1 to 1.1.1",
        "`torch.profiler.ExecutionTraceObserver`, PARAM",
        "calls in order, type, root, with PyTorch 2.4 and newer communicators",
        "times, operator, algorithm and protocol",
        execution_trace.recognizes,
        execution_trace.read,
    ),
    PatternFormat(
        "simai",
        "SimAI's workload",
        "SimAI's workload generator (AICB)",
        "calls of a training step in order, bytes, kinds of groups",
        "times, type, operator, root",
        simai.recognizes,
        simai.read,
    ),
    PatternFormat(
        "nccl-log",
        "NCCL's log",
        "`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING`, best with"
        " `NCCL_DEBUG_FILE=nccl.%h.%p.log`",
        "every call in order, type, operator, root, communicators, algorithm and protocol; NCCL"
        " 2.20 to 2.23 predict the time",
        "times; replays of CUDA graphs",
        nccl_log.recognizes,
        nccl_log.read,
    ),
    PatternFormat(
        "chakra",
        "Chakra's execution trace (.et)",
        "`chakra_converter`, ASTRA-sim's generators",
        "calls in order, bytes, communicators, times where the converter had them",
        "type, operator, root, algorithm and protocol",
        chakra.recognizes,
        chakra.read,
    ),
    PatternFormat(
        "chakra-json",
        "Chakra's execution trace as JSON",
        "`chakra_jsonizer`",
        "as chakra",
        "as chakra",
        chakra_json.recognizes,
        chakra_json.read,
    ),
)
BY_NAME = {row.name: row for row in FORMATS}
MAX_NAMED = 4  # directories that a hint names
_HINT = f"name the format: --input-format {', '.join((*BY_NAME, RECORD))}"


def detect(source: PatternSource) -> str:
    """The name of a file's format, by its first bytes; UsageError if no format recognizes them."""
    head = source.head
    if SCHEMA.encode() in head.partition(b"\n")[0]:
        return RECORD
    for row in FORMATS:
        if row.recognizes(head):
            return row.name
    reason = "no known format" if head else "empty, or not readable"
    raise UsageError(f"{source.name}: {reason}", _HINT)


def read(
    sources: Iterable[PatternSource], format_name: str | None = None, limit: int = ORDER_LIMIT
) -> Pattern:
    """The record of a job from its files: all of one format, each with the calls of other ranks.

    Each file is closed before the next is opened. More than `limit` calls are counted without their
    order. UsageError if the files hold no call, or are of several formats.
    """
    if format_name is not None and format_name not in (*BY_NAME, RECORD):
        names = {name: name for name in (*BY_NAME, RECORD)}
        raise unknown("format", format_name, names, "--input-format: ")
    job: _JobFiles | None = None
    unrecognized: dict[str, UsageError] = {}
    for source in sources:
        with contextlib.closing(source):
            try:
                name = format_name or detect(source)
            except UsageError as error:
                unrecognized[source.name] = error
                continue
            if name == RECORD and job is None:
                return _record(source)
            job = job or _JobFiles(source.name, name, limit)
            job.add(source, name)
    if job is None:
        raise next(iter(unrecognized.values()), UsageError("no file to read", _HINT))
    return job.pattern(unrecognized)


class NoCall(UsageError):
    """Files of a known format that hold no call."""


class _JobFiles:
    """The files of one job."""

    def __init__(self, first: str, name: str, limit: int) -> None:
        self._first, self._row = first, BY_NAME[name]
        self._collector = Collector(name, limit)

    def add(self, source: PatternSource, name: str) -> None:
        """Read a file of this format; UsageError for another."""
        if name != self._row.name:
            stated = f"{self._first} is {self._row.name}, {source.name} is {name}"
            raise UsageError(
                f"files of several formats: {stated}", "give the files of one job in one format"
            )
        self._row.read(source, self._collector)

    def pattern(self, unrecognized: Mapping[str, UsageError]) -> Pattern:
        """The record, in which files that no format recognizes are named, but for what a rank
        printed; NoCall if no file held a call or what a GPU did.
        """
        for name, error in unrecognized.items():
            if Path(name).name not in rank_folders.OUTPUT:
                self._collector.add_problem(error.message)
        collected = self._collector
        if not collected.call_count and not collected.gpu_times.has_kernels():
            notes = self._collector.header.notes
            reason = f"; {notes[0]}" if notes else ""
            message = f"{self._first}: no call in it, read as {self._row.title}{reason}"
            raise NoCall(message, f"it is made by {self._row.made_by}; or {_HINT}")
        return pattern(self._collector)


def _record(source: PatternSource) -> Pattern:
    if source.files > 1:
        raise UsageError(
            f"{source.files} files, the first of them a record: a record holds all ranks of a job",
            "give one record",
        )
    collector = Collector(RECORD)  # for the problems of the file
    lines = (line for _, line in source.lines(collector))
    record = pattern_lines.read(lines, source.name)
    record.header.skipped += collector.header.skipped
    return record


def load(files: Sequence[str], source: str | None = None) -> Pattern:
    """The record in these files (- = stdin, a directory stands for its files), in the format
    `source` or that of their content. The folder of a capture also has the training's steps.

    UsageError if they cannot be read, or hold no call.
    """
    pattern = read(sources(files), source)
    if len(files) == 1 and Path(files[0]).is_dir():
        recorded = rank_files.read(Path(files[0]))
        header = pattern.header
        header.training = recorded.steps
        header.world = max(header.world, recorded.world)
        header.notes += recorded.notes
        header.lateness = header.lateness or recorded.lateness
        is_timed = any(row.gpu_us or row.cpu_us for row in pattern.rows)
        if not (is_timed or recorded.steps) and rank_files.is_capture(Path(files[0])):
            header.notes.append(rank_files.LATE_UNKNOWN)
    return pattern


def sources(files: Sequence[str]) -> Iterator[PatternSource]:
    """Every file, opened only when needed: a process may open fewer files than a job has ranks."""
    names = [name for file in files for name in _names(file)]
    if names.count("-") > 1:
        raise UsageError("stdin is given twice", "give - once")
    for number, name in enumerate(names):
        yield opened(name, _open(name), number, len(names), _graphs_beside(name))


def _graphs_beside(name: str) -> bytes:
    """The file of the same process with its CUDA graphs; empty if there is none to read."""
    path = Path(name)
    if path.suffix != CAPTURED[0]:
        return b""
    try:
        return path.with_suffix(graph_replays.SUFFIX).read_bytes()
    except OSError:
        return b""


def _names(file: str) -> list[str]:
    """The names of the files that an argument stands for."""
    path = Path(file)
    if file == "-" or not path.is_dir():
        return [file]
    try:
        paths = [
            entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith(".")
        ]
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}", "name a directory that you can read"
        ) from error
    if not paths and has_ranks(path):
        raise UsageError(
            f"{file}: its ranks have written no calls so far",
            f"busbw watch job {shlex.quote(file)}: it says what they do",
        )
    paths = paths or rank_folders.files(path)
    if not paths:
        folders = sorted(str(entry) for entry in path.glob("[!.]*/"))
        raise UsageError(
            f"{file}: there are no files in this directory",
            f"name one of its directories: {', '.join(folders[:MAX_NAMED])}"
            if folders
            else "name the directory with the files of the ranks",
        )
    for suffix in CAPTURED:  # the best first; the folder also has the pattern made of them
        captured = [entry for entry in paths if entry.suffix == suffix]
        if captured:
            paths = captured
            break
    return [str(entry) for entry in sorted(paths, key=_by_number)]


def _by_number(path: Path) -> tuple[int, str, int, str]:
    """A key that sorts `rank_2` before `rank_10`, also of folders."""
    return len(path.parent.name), path.parent.name, len(path.name), path.name


def _open(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        refuse_device(name)
        return Path(name).open("rb", buffering=0)
    except OSError as error:
        raise UsageError(
            f"{name}: {error.strerror}", "name a file or a folder, or - for stdin"
        ) from error
