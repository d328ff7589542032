"""Any file that busbw writes or reads: measurements, checks, tests of links, plans, snapshots
and patterns.

Reads sweeps from files and stdin.
"""

from dataclasses import replace
from pathlib import Path

import click

from busbw.api import files
from busbw.cli import stored_runs
from busbw.cli.options.parameters import not_empty
from busbw.cli.streams import print_err
from busbw.core.errors import UsageError
from busbw.core.finding import LOG_FINDINGS, Verdict
from busbw.core.host_ranges import listed
from busbw.core.result import Outcome, Result
from busbw.host.snapshot import others_in
from busbw.pattern.unfinished import in_pattern, is_unfinished
from busbw.report.file_kinds import FileContent
from busbw.transfer.types import TransferReport

table_option = click.option(
    "--table",
    type=click.IntRange(1),
    default=None,
    help="which table of a log that holds several, from 1 on",
)

system_option = click.option(
    "--system",
    default=None,
    callback=not_empty,
    help="of nixlbench and ucx_perftest: the GPU and how many a host has, like h100x8, or a cloud's"
    " host, like p5.48xlarge, with whose NICs the rates are compared",
)


def read_sweep(file: str, collective: str | None, table: int | None = None) -> Result:
    """The sweep in a file, with a warning for doubts about its log; UsageError for another kind."""
    result = files.sweep_in(read_bytes(file), file, collective, table)
    warn_of_doubts(result, file)
    return result


def result_in(data: bytes, file: str, collective: str | None, table: int | None = None) -> Outcome:
    """As `read_sweep`, from the content of the file, or a training, a plan or a replay."""
    result = files.result_in(data, file, collective, table)
    if isinstance(result, Result):
        warn_of_doubts(result, file)
    return result


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
    return files.unpacked_bytes(_packed_bytes(file), file)


def _packed_bytes(file: str) -> bytes:
    if stored_runs.NAME.fullmatch(file):
        return stored_runs.content(file)
    return files.packed_bytes(file)


def refused_system(system: str, name: str) -> UsageError:
    return UsageError(
        f"--system {system}: {name} is no output of nixlbench or ucx_perftest", "leave out --system"
    )


def compared_with(content: Outcome | FileContent, system: str, name: str) -> FileContent:
    """A benchmark of transfers, compared with the NICs of a system; UsageError for another file."""
    from busbw.api.systems import LinkOptions, given_system
    from busbw.transfer import findings, text

    given = given_system(system, "", LinkOptions())
    if (
        given is None
        or not isinstance(content, FileContent)
        or not isinstance(content.held, TransferReport)
    ):
        raise refused_system(system, name)
    judged = findings.judged(content.held, given[0])
    return replace(content, text=lambda width: text.render(judged, width), held=judged)


# Of files that are taken from a directory, also if they are compressed.
SUFFIXES = (".json", ".jsonl", ".log", ".table", ".txt")
NO_RESULTS = (".html", ".md", ".sig")  # the page itself, and what people put beside it


def load(
    file: str, collective: str | None = None, table: int | None = None
) -> Outcome | FileContent:
    """What is in the file (- = stdin) or in the folder of a capture; UsageError if busbw reads no
    such file, or it is broken.
    """
    if file != "-" and Path(file).is_dir():
        return files.several([file])
    return files.content(_packed_bytes(file), file, collective, table)


def files_in(directory: Path) -> tuple[list[Path], list[Path]]:
    """The files of a directory that may hold a result, by name, and what else is in it; UsageError
    if no file may. A capture for which busbw has made no pattern is itself the first of them.
    Pages, notes and hidden files are neither.
    """
    try:
        inner = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UsageError(
            f"{directory}: {error.strerror}", "name a directory that you can read"
        ) from error
    found = [path for path in inner if _suffix(path) in SUFFIXES and path.is_file()]
    others = [path for path in inner if path not in found and path.suffix not in NO_RESULTS]
    captured = in_pattern(directory)
    others = [path for path in others if path not in captured]
    if is_unfinished(directory):
        return [directory, *found], others
    if not found:
        folders = " ".join(str(path) for path in others if path.is_dir())
        raise UsageError(
            f"{directory}: no file in it ends in {', '.join(SUFFIXES)}",
            f"name its folders: {folders}" if folders else "name the files",
        )
    return found, others


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def note_unread(name: str) -> None:
    """Tell what is not read of a folder of snapshots; nothing of another file."""
    if left := others_in(name):
        print_err(f"note: not read of {name}: {listed(left)}")
