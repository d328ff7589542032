"""Reads sweeps from files and stdin."""

import sys

import click

from busbw.cli.streams import talk
from busbw.core.errors import UsageError
from busbw.core.finding import LOG_FINDINGS, Verdict
from busbw.core.given_file import read_stream, read_whole
from busbw.core.result import Result
from busbw.history.exported import split
from busbw.report import file_kinds
from busbw.report.read import read
from busbw.report.registry import kind

table_option = click.option(
    "--table",
    type=click.IntRange(1),
    default=None,
    help="which table of a log that holds several, from 1 on",
)


def read_sweep(file: str, collective: str | None, table: int | None = None) -> Result:
    """The sweep in a file, with a warning for what its log leaves in doubt; UsageError for a
    training or a plan, which have no sizes.
    """
    return sweep_in(read_bytes(file), file, collective, table)


def sweep_in(data: bytes, file: str, collective: str | None, table: int | None = None) -> Result:
    """As `read_sweep`, of what was read from the file."""
    other = file_kinds.title(data)
    if other is not None:
        raise UsageError(f"{file}: {other.lower()}, not a sweep", f"busbw show {file}")
    one_result(data, file)
    result = read(data, file, collective, table)
    if not isinstance(result, Result):
        raise UsageError(f"{file} is {kind(result)}, not a sweep", f"busbw show {file}")
    return noted(result, file)


def one_result(data: bytes, file: str) -> None:
    """UsageError for an export of a history with several results."""
    count = len(split(data, file))
    if count > 1:
        raise UsageError(
            f"{file}: {count} results, one on each line",
            f"busbw history add {file}, or one: sed -n 1p {file} | busbw show -",
        )


def noted(result: Result, file: str) -> Result:
    """The sweep, with a warning for what its log leaves in doubt: several tables, missing rows,
    figures that contradict each other.
    """
    for finding in result.findings:
        if finding.id in LOG_FINDINGS and finding.verdict is not Verdict.PASS:
            talk(f"warning: {file}: {'; '.join(filter(None, (finding.message, finding.fix)))}")
    return result


def read_bytes(file: str) -> bytes:
    """What is in the file, or on stdin for `-`; UsageError where it cannot be read, or is too
    large to be read whole.
    """
    try:
        return read_stream(sys.stdin.buffer) if file == "-" else read_whole(file)
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}", "name a result file, or - for stdin"
        ) from error
