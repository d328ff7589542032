"""`busbw.load`: any file that busbw writes or reads, as its object.

`content` is what a file holds with its text, for `busbw show`.
"""

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from busbw.check.shell_words import word
from busbw.core.errors import UsageError
from busbw.core.finding import LOG_FAILED, RunFinding, Verdict
from busbw.core.given_file import MAX_FILE_BYTES, read_stream, read_whole, unwrapped
from busbw.core.gzip_stream import unpacked
from busbw.core.pattern import Pattern
from busbw.core.result import Outcome, Result
from busbw.history.exported import split
from busbw.host.source import Source
from busbw.job.types import JobReport
from busbw.report import file_kinds
from busbw.report.file_kinds import FileContent
from busbw.report.read import RESULT_KEY, read
from busbw.report.registry import kind
from busbw.report.results import kind_of

MOST_SEEN = 3  # lines of a log that failed, beside a table
MOST_LOGS = 256 << 20  # bytes of several logs that are read for why a job failed
TRACE = "kineto"  # of all that may be larger than the memory
LOG = "nccl-log"
FileObject = msgspec.Struct | Pattern | list[msgspec.Struct]


def load(
    path: str | Path, *, collective: str | None = None, table: int | None = None
) -> FileObject:
    """What is in a file that `busbw show` reads, also compressed with gzip.

    A measurement is a Result, or another Outcome. A check, a link test, a comparison, a prediction
    or the output of nixlbench or ucx_perftest is its report; a snapshot or a kernel log is the
    CheckReport of its checks. A capture or trace of an application is a Pattern; so is a directory
    with those of all ranks. A directory of snapshots is a ClusterReport. A watch is a list of its
    intervals.

    `collective` is that of a log that does not name it; `table` chooses one of several in a log,
    from 1 on. UsageError for a file that cannot be read, is broken, or holds none of these.
    """
    file = str(path)
    if Path(file).is_dir():
        return several([file]).held
    found = content(packed_bytes(file), file, collective, table)
    if not isinstance(found, FileContent):
        return found
    return list(found.intervals) or found.held


def several(files: Sequence[str], source: str | None = None) -> FileContent:
    """What several files, or those of directories, hold together: the checks of all nodes, if they
    are snapshots, or else a pattern, in the format `source` if it is given.
    """
    from busbw.host.snapshot import archives_in, is_archive

    sides = [archives_in(file) or [file] for file in files]
    if not source and all(any(map(is_archive, side)) for side in sides):
        snapshots = [file for side in sides for file in side]
        return _nodes(snapshots, newest=snapshots != list(files))
    from busbw.pattern.rank_ends import notes
    from busbw.pattern.registry import load as load_pattern
    from busbw.pattern.unfinished import note

    try:
        pattern = load_pattern(files, source)
    except UsageError as error:
        if (alone := _read_alone(files, source)) is not None:
            raise alone from error
        failure = None if source or "-" in files else _failure(_logs(files))
        if failure is None:
            raise
        return _of_failure(failure)
    if pattern.header.source == LOG and "-" not in files:
        _note_failure(pattern, _failure(_logs(files)))
    if len(files) == 1 and Path(files[0]).is_dir():
        folder = Path(files[0])
        pattern.header.notes += filter(None, [note(folder), *notes(folder)])
    return FileContent.of_pattern(pattern)


def _read_alone(files: Sequence[str], source: str | None) -> UsageError | None:
    """The error for files of which each is read alone, such as results; None for others."""
    given, first = f"{len(files)} files are given", files[0]
    if len(files) == 1:
        given = "a folder is given"
        first = next(_results_in(Path(first)), "-")
    if source or "-" in (first, *files) or Path(first).is_dir():
        return None
    try:
        found = content(packed_bytes(first), first)
    except UsageError:
        return None
    if isinstance(found, FileContent) and (isinstance(found.held, Pattern) or _is_log(found.held)):
        return None
    what = found.title.lower() if isinstance(found, FileContent) else kind(found)
    return UsageError(
        f"{first}: {what}, and {given}: only those of one job's ranks, or snapshots, are shown"
        " together",
        f"one at a time: busbw show {word(first)}; all on one page: busbw report"
        f" {' '.join(map(word, files))}",
    )


def _results_in(folder: Path) -> Iterator[str]:
    """The files of busbw in a folder, by their first bytes; none if it is a file."""
    for path in sorted(filter(Path.is_file, folder.iterdir())) if folder.is_dir() else ():
        with contextlib.suppress(OSError), path.open("rb") as file:
            if RESULT_KEY.match(file.read(100)):
                yield str(path)


def is_trace(file: str) -> bool:
    """Whether a file begins as a trace of torch.profiler, which has the calls of one rank."""
    from busbw.pattern.registry import detect, sources

    try:
        (source,) = sources([file])
        with contextlib.closing(source):
            return detect(source) == TRACE
    except UsageError:
        return False


def _nodes(snapshots: Sequence[str], *, newest: bool) -> FileContent:
    from busbw.check.cluster import recorded_nodes
    from busbw.check.cluster_text import cluster_text
    from busbw.check.groups import faults
    from busbw.check.registry import CHECKS  # takes 0.1 s

    nodes = recorded_nodes(snapshots, CHECKS, newest=newest)
    nodes.faults = faults(nodes.nodes)
    return FileContent("Snapshots", lambda width: cluster_text(nodes, width), nodes)


def load_comparable(path: str | Path, collective: str | None = None) -> Result:
    """What `comparable` makes of a file; UsageError for one that holds no result."""
    return comparable(result_in(read_bytes(str(path)), str(path), collective), str(path))


def comparable(result: Outcome, name: str) -> Result:
    """A sweep, or the times of another result; UsageError, which has the name, if it has none."""
    if isinstance(result, Result):
        return result
    compared = kind_of(result).compared
    if compared is None:
        raise UsageError(f"{name} is {kind(result)}, which is not compared", f"busbw show {name}")
    return compared(result)


def read_bytes(file: str) -> bytes:
    """The content of the file, or of stdin for `-`, decompressed; UsageError if it cannot be read,
    or is too large.
    """
    return unpacked_bytes(packed_bytes(file), file)


def packed_bytes(file: str) -> bytes:
    """As `read_bytes`, but as it is stored."""
    try:
        return read_stream(sys.stdin.buffer) if file == "-" else read_whole(file)
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}", "name a result file, or - for stdin"
        ) from error


def unpacked_bytes(data: bytes, file: str) -> bytes:
    """The content of a file as its program wrote it."""
    try:
        return unwrapped(unpacked(data, MAX_FILE_BYTES))
    except OSError as error:
        hint = f"gunzip -c {word(file)} | head -c 64M, to see what is in it"
        raise UsageError(f"{file}: {error.strerror}", hint) from error


def sweep_in(data: bytes, file: str, collective: str | None, table: int | None = None) -> Result:
    """The sweep in the content of a file; UsageError for another kind."""
    result = result_in(data, file, collective, table)
    if not isinstance(result, Result):
        raise UsageError(f"{file} is {kind(result)}, not a sweep", f"busbw show {file}")
    return result


def result_in(data: bytes, file: str, collective: str | None, table: int | None = None) -> Outcome:
    """As `sweep_in`, or a training, a plan or a replay."""
    other = file_kinds.title(data)
    if other is not None:
        raise UsageError(f"{file}: {other.lower()}, not a sweep", f"busbw show {file}")
    if _pattern_format(data, file) == TRACE:
        raise UsageError(f"{file}: trace of torch.profiler, not a sweep", f"busbw show {file}")
    _refuse_several(data, file)
    return _with_failure(read(data, file, collective, table), data)


def _refuse_several(data: bytes, file: str) -> None:
    """UsageError for an export of a history with several results."""
    count = len(split(data, file))
    if count > 1:
        raise UsageError(
            f"{file}: {count} results, one on each line",
            f"busbw history add {file}, or one: sed -n 1p {file} | busbw show -",
        )


def content(
    packed: bytes, file: str, collective: str | None = None, table: int | None = None
) -> Outcome | FileContent:
    """What is in these bytes of the file, which may be compressed; UsageError if busbw reads no
    such file, or it is broken.
    """
    if _pattern_format(packed, file) == TRACE:
        return _read_pattern(packed, file)
    try:
        data = unpacked_bytes(packed, file)
    except UsageError as error:
        # a trace may be cut, or larger than the memory
        document = _pattern(packed, file, error)
        if document is None:
            raise
        return document
    document = file_kinds.read(data, file)
    if document is not None:
        return document
    if file_kinds.title(data) == file_kinds.SNAPSHOT:
        from busbw.host.snapshot import parse_archive

        return _checked(parse_archive(data, file), file)
    _refuse_several(data, file)
    try:
        return _with_failure(read(data, file, collective, table), data)
    except UsageError as error:
        document = _log_of_job(data, file, error) or _kernel_log(data, file)
        if document is None:
            raise
        return document


def _with_failure(result: Outcome, data: bytes) -> Outcome:
    """A sweep, with NCCL's reason if its log ends before its table."""
    from busbw.job.nccl_warnings import MARK

    if not isinstance(result, Result) or result.complete or MARK.encode() not in data:
        return result
    if data.lstrip()[:1] in b"{<":
        return result  # no log: what wrote the file has judged the run
    failure = _failure(data)
    if failure is not None and failure.verdict is Verdict.FAIL:
        seen = "; ".join(failure.evidence[:MOST_SEEN])
        result.findings.append(
            RunFinding(LOG_FAILED, Verdict.FAIL, failure.message, seen, failure.fix)
        )
    return result


def _log_of_job(data: bytes, file: str, of_sweep: UsageError) -> FileContent | None:
    """What an application sent, with a note on why it failed; that alone of a log without calls."""
    failure = _failure(data)
    try:
        document = _pattern(data, file, of_sweep)
    except UsageError:
        if failure is None:
            raise
        document = None
    if failure is None:
        return document
    if document is None:
        return _of_failure(failure)
    if isinstance(document.held, Pattern):
        _note_failure(document.held, failure)
    return document


def _note_failure(pattern: Pattern, failure: JobReport | None) -> None:
    if failure is not None and failure.verdict is Verdict.FAIL:
        pattern.header.notes.append(f"the job failed: {failure.message}")


def _logs(files: Sequence[str]) -> bytes:
    """The lines of several files, up to a limit in all."""
    from busbw.pattern.collector import Collector
    from busbw.pattern.registry import sources

    content = bytearray()
    for source in sources(files):
        with contextlib.closing(source):
            for piece in source.pieces(Collector("logs")):
                content += piece[: MOST_LOGS - len(content)]
        content += b"\n"
    return bytes(content)


def _is_log(held: msgspec.Struct) -> bool:
    """Whether this is what the log of a job says, and no saved check, which has a time."""
    return isinstance(held, JobReport) and not held.at


def is_log_of_failure(content: FileContent) -> bool:
    """Whether a file is the log of a job that failed."""
    held = content.held
    return isinstance(held, JobReport) and _is_log(held) and held.verdict is Verdict.FAIL


def _of_failure(failure: JobReport) -> FileContent:
    from busbw.job import types

    return FileContent("Check of a job", lambda width: types.text(failure, width), failure)


def _failure(data: bytes) -> JobReport | None:
    """What a job's log says of a collective that timed out, or of NCCL's failure; None for another
    file.
    """
    from busbw.job import nccl_warnings, watchdog_log

    report = None
    if any(mark.encode() in data for mark in watchdog_log.MARKS):
        report = watchdog_log.report(data.decode("utf-8", "replace"))
    if report is None and any(mark.encode() in data for mark in nccl_warnings.MARKS):
        report = nccl_warnings.report(data.decode("utf-8", "replace"))
    return report


def _kernel_log(data: bytes, file: str) -> FileContent | None:
    """What the checks of a kernel log find in it; None for another file."""
    from busbw.host import kernel_log_file

    source = kernel_log_file.source(data, file)
    return _checked(source, file) if source else None


def _checked(source: Source, file: str) -> FileContent:
    """A machine of a file as its checks and facts."""
    from busbw.check import text as check_text
    from busbw.check.cluster import findings_here
    from busbw.check.registry import CHECKS  # takes 0.1 s
    from busbw.check.types import overall

    node = findings_here(source, CHECKS, file)
    report = node.report
    report.verdict = overall(report.findings)
    return FileContent(
        file_kinds.SNAPSHOT, lambda width: check_text.text(report, width), report, facts=node.facts
    )


def _pattern(data: bytes, file: str, of_sweep: UsageError) -> FileContent | None:
    """A capture, log or trace of an application; None for a file of another kind.

    UsageError that names the kind if it is one of these without a call; `of_sweep` instead if the
    file has the titles of a sweep's table.
    """
    if _pattern_format(data, file) is None:
        return None
    try:
        return _read_pattern(data, file)
    except UsageError as error:
        raise of_sweep if b"busbw" in data else error from None


def _pattern_format(data: bytes, file: str) -> str | None:
    """The name of a pattern's format; None for a file of another kind."""
    from busbw.pattern.registry import detect
    from busbw.pattern.source import opened

    try:
        return detect(opened(file, io.BytesIO(data)))
    except UsageError:
        return None


def _read_pattern(data: bytes, file: str) -> FileContent:
    from busbw.pattern.registry import read as read_pattern
    from busbw.pattern.source import opened

    return FileContent.of_pattern(read_pattern([opened(file, io.BytesIO(data))]))
