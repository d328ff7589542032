"""Any file that busbw writes or reads: measurements, checks, tests of links, plans, snapshots
and patterns.
"""

import io
from pathlib import Path

from busbw.cli.sweep_files import one_result, read_bytes
from busbw.core.errors import UsageError
from busbw.report import file_kinds
from busbw.report.file_kinds import Document
from busbw.report.read import read
from busbw.report.results import AnyResult

SUFFIXES = (".json", ".jsonl", ".log", ".table", ".txt")  # of files that are taken from a directory


def load(
    file: str, collective: str | None = None, table: int | None = None
) -> AnyResult | Document:
    """What is in the file (- = stdin); UsageError for what is none of them, as for a broken
    measurement.
    """
    data = read_bytes(file)
    found = file_kinds.read(data, file)
    if found is not None:
        return found
    if file_kinds.title(data) == file_kinds.SNAPSHOT:
        return _snapshot(data, file)
    one_result(data, file)
    try:
        return read(data, file, collective, table)
    except UsageError as error:
        pattern = _pattern(data, file, error)
        if pattern is None:
            raise
        return pattern


def _snapshot(data: bytes, file: str) -> Document:
    """A snapshot as its checks."""
    from busbw.check import text as check_text
    from busbw.check.examine import examine  # takes 0.1 s
    from busbw.host.snapshot import parse_archive

    report = examine(parse_archive(data, file), name=file)
    return Document(file_kinds.SNAPSHOT, lambda width: check_text.text(report, width), report)


def _pattern(data: bytes, file: str, of_sweep: UsageError) -> Document | None:
    """A capture, log or trace of an application; None for a file of another kind.

    UsageError that names the kind where it is one of these without a call, unless the file has the
    titles of a sweep's table.
    """
    from busbw.pattern import text as pattern
    from busbw.pattern.registry import detect
    from busbw.pattern.registry import read as read_pattern
    from busbw.pattern.source import opened

    try:
        detect(opened(file, io.BytesIO(data)))
    except UsageError:
        return None
    try:
        record = read_pattern([opened(file, io.BytesIO(data))])
    except UsageError as error:
        raise of_sweep if b"busbw" in data else error from None
    return Document(file_kinds.PATTERN, lambda width: pattern.table(record, width))


def files_in(directory: Path) -> list[Path]:
    """The files of a directory that may hold a result, by name; UsageError if there is none."""
    try:
        found = sorted(
            path
            for path in directory.iterdir()
            if path.suffix in SUFFIXES and path.is_file() and not path.name.startswith(".")
        )
    except OSError as error:
        raise UsageError(
            f"{directory}: {error.strerror}", "name a directory that you can read"
        ) from error
    if not found:
        raise UsageError(
            f"{directory}: no file in it ends in {', '.join(SUFFIXES)}", "name the files"
        )
    return found
