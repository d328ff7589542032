"""Any file that busbw writes or reads: measurements, checks, tests of links, plans, snapshots
and patterns.

Reads sweeps from files and stdin.
"""

import io
import sys
from pathlib import Path

import click

from busbw.check.shell_words import word
from busbw.cli import stored_runs
from busbw.cli.streams import print_err
from busbw.core.errors import UsageError
from busbw.core.finding import LOG_FINDINGS, Verdict
from busbw.core.given_file import MAX_FILE_BYTES, read_stream, read_whole, unwrapped
from busbw.core.gzip_stream import unpacked
from busbw.core.result import Outcome, Result
from busbw.history.exported import split
from busbw.host.source import Source
from busbw.report import file_kinds
from busbw.report.file_kinds import FileContent
from busbw.report.read import read
from busbw.report.registry import kind

table_option = click.option(
    "--table",
    type=click.IntRange(1),
    default=None,
    help="which table of a log that holds several, from 1 on",
)


def read_sweep(file: str, collective: str | None, table: int | None = None) -> Result:
    """The sweep in a file, with a warning for doubts about its log; UsageError for another kind."""
    return sweep_in(read_bytes(file), file, collective, table)


def sweep_in(data: bytes, file: str, collective: str | None, table: int | None = None) -> Result:
    """As `read_sweep`, from the content of the file."""
    result = result_in(data, file, collective, table)
    if not isinstance(result, Result):
        raise UsageError(f"{file} is {kind(result)}, not a sweep", f"busbw show {file}")
    return result


def result_in(data: bytes, file: str, collective: str | None, table: int | None = None) -> Outcome:
    """As `sweep_in`, or a training, a plan or a replay."""
    other = file_kinds.title(data)
    if other is not None:
        raise UsageError(f"{file}: {other.lower()}, not a sweep", f"busbw show {file}")
    _refuse_several(data, file)
    result = read(data, file, collective, table)
    if isinstance(result, Result):
        warn_of_doubts(result, file)
    return result


def _refuse_several(data: bytes, file: str) -> None:
    """UsageError for an export of a history with several results."""
    count = len(split(data, file))
    if count > 1:
        raise UsageError(
            f"{file}: {count} results, one on each line",
            f"busbw history add {file}, or one: sed -n 1p {file} | busbw show -",
        )


def warn_of_doubts(result: Result, file: str) -> None:
    """Warn of what a log leaves in doubt: several tables, missing rows, contradictory figures."""
    for finding in result.findings:
        if finding.id in LOG_FINDINGS and finding.verdict is not Verdict.PASS:
            text = "; ".join(filter(None, (finding.message, finding.fix)))
            print_err(f"warning: {file}: {text}")


def read_bytes(file: str) -> bytes:
    """The content of the file, of stdin for `-`, or of a stored run for `run:12`, as its program
    wrote it, decompressed; UsageError if it cannot be read, or is too large.
    """
    return _unpacked(_packed_bytes(file), file)


def _packed_bytes(file: str) -> bytes:
    if stored_runs.NAME.fullmatch(file):
        return stored_runs.content(file)
    try:
        return read_stream(sys.stdin.buffer) if file == "-" else read_whole(file)
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}", "name a result file, or - for stdin"
        ) from error


def _unpacked(data: bytes, file: str) -> bytes:
    try:
        return unwrapped(unpacked(data, MAX_FILE_BYTES))
    except OSError as error:
        hint = f"gunzip -c {word(file)} | head -c 64M, to see what is in it"
        raise UsageError(f"{file}: {error.strerror}", hint) from error


TRACE = "kineto"  # of all that may be larger than the memory
SUFFIXES = (".json", ".jsonl", ".log", ".table", ".txt")  # of files that are taken from a directory


def load(
    file: str, collective: str | None = None, table: int | None = None
) -> Outcome | FileContent:
    """What is in the file (- = stdin); UsageError if busbw reads no such file, or it is broken."""
    packed = _packed_bytes(file)
    if _pattern_format(packed, file) == TRACE:
        return _read_pattern(packed, file)
    try:
        data = _unpacked(packed, file)
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
        return read(data, file, collective, table)
    except UsageError as error:
        document = _pattern(data, file, error) or _timeout(data) or _kernel_log(data, file)
        if document is None:
            raise
        return document


def _timeout(data: bytes) -> FileContent | None:
    """What a training's log says of a collective that timed out; None for another file."""
    from busbw.job import types, watchdog_log

    if b"Watchdog caught" not in data:
        return None
    report = watchdog_log.report(data.decode("utf-8", "replace"))
    if report is None:
        return None
    return FileContent("Check of a job", lambda width: types.text(report, width), report)


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


def files_in(directory: Path) -> list[Path]:
    """The files of a directory that may hold a result, by name; UsageError if there is none."""
    try:
        files = sorted(
            path
            for path in directory.iterdir()
            if path.suffix in SUFFIXES and path.is_file() and not path.name.startswith(".")
        )
    except OSError as error:
        raise UsageError(
            f"{directory}: {error.strerror}", "name a directory that you can read"
        ) from error
    if not files:
        raise UsageError(
            f"{directory}: no file in it ends in {', '.join(SUFFIXES)}", "name the files"
        )
    return files
