"""What a report is made of: the files of its command line, and those of its directories."""

import itertools
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from busbw.api import files as files_api
from busbw.check.types import CheckReport, LeftOut, left_out
from busbw.cli.file_kinds import compared_with, files_in, load, refused_system, warn_of_doubts
from busbw.cli.streams import print_err
from busbw.core.errors import UsageError
from busbw.core.host_ranges import listed
from busbw.core.pattern import Pattern
from busbw.core.result import Outcome, Result
from busbw.report.file_kinds import TRANSFERS, FileContent
from busbw.report.other_reports import OtherReports
from busbw.report.registry import kind, render
from busbw.report.results import kind_of


@dataclass(frozen=True, slots=True)
class _SweepFile:
    """A sweep, its file, and the directory that was searched for it."""

    file: str
    result: Result
    folder: str

    @property
    def start_s(self) -> float:
        """When it started, in seconds since the epoch; infinity if the file does not say."""
        try:
            return datetime.fromisoformat(self.result.start).timestamp()
        except ValueError:
            return math.inf


def gather(
    files: Sequence[str], collective: str | None, table: int | None
) -> tuple[list[tuple[str, Result]], OtherReports]:
    """The sweeps, and everything else. One of several files that cannot be read is noted and
    skipped; UsageError if there is no other.

    Named files are in the order of the command line. The sweeps of a directory are by the time of
    the run, so that the first is the earliest; those whose time is not known follow.
    """
    sweeps: list[_SweepFile] = []
    others: list[tuple[str, FileContent]] = []
    skipped: list[tuple[str, str]] = []
    expanded, unread = expand(files), _unread(files)
    jobs = _traces_of_jobs(expanded)
    merged = {name for names, _ in jobs.values() for name in names}
    others += [(folder, pattern) for folder, (_, pattern) in jobs.items()]
    for text in unread:
        print_err(f"note: {text}; name them to have them in the report")
    for file, folder in expanded:
        if file in merged:
            continue
        name = "stdin" if file == "-" else file
        try:
            content = load(file, collective, table)
        except UsageError as error:
            if len(expanded) == 1:
                raise
            print_err(f"warning: skipped {error.message}")
            skipped.append((name, error.message.removeprefix(f"{file}: ")))
            continue
        if isinstance(content, Result):
            warn_of_doubts(content, file)
            sweeps.append(_SweepFile(file, content, folder))
            continue
        document = content if isinstance(content, FileContent) else _document(content)
        others.append((name, document))
    if not sweeps and not others:
        raise UsageError(
            f"{listed(files)}: none of the {len(expanded)} files can be read",
            "busbw show FILE says what is wrong with one",
        )
    in_order = [(sweep.file, sweep.result) for sweep in _in_order(sweeps)]
    left = _left_out(others, {file for file, folder in expanded if folder})
    said = left.texts()
    folders = list(dict.fromkeys(folder for _, folder in expanded if folder))
    if left.older and len(folders) > 1:
        said[0] += f"; what changed: busbw compare {shlex.join((folders[0], folders[-1]))}"
    unread += said
    for text in said:
        print_err(f"note: {text}; name them to have them in the report")
    kept = [(name, one) for name, one in others if name not in (*left.older, *left.copies)]
    return in_order, OtherReports(kept, skipped, unread)


def compared(others: OtherReports, system: str, named: Sequence[str]) -> OtherReports:
    """The files, of which benchmarks of transfers are compared with the NICs of a system;
    UsageError without one.
    """
    if not any(document.title == TRANSFERS for _, document in others.files):
        raise refused_system(system, listed(named))
    files = [
        (name, compared_with(one, system, name) if one.title == TRANSFERS else one)
        for name, one in others.files
    ]
    return replace(others, files=files)


def _traces_of_jobs(
    expanded: Sequence[tuple[str, str]],
) -> dict[str, tuple[list[str], FileContent]]:
    """Of each directory that holds traces of several ranks of one job, these files and what they
    are together, as `busbw show` of the directory reads them.
    """
    traces: dict[str, list[str]] = {}
    for file, folder in expanded:
        if folder and Path(file).is_file() and files_api.is_trace(file):
            traces.setdefault(folder, []).append(file)
    jobs = {}
    for folder, names in traces.items():
        if len(names) < 2:
            continue
        try:
            together = files_api.several(names)
        except UsageError:  # the files are read one by one, and their errors told
            continue
        held = together.held
        if isinstance(held, Pattern) and len(held.header.ranks) == len(names):
            jobs[folder] = (names, together)
    return jobs


def _left_out(others: Sequence[tuple[str, FileContent]], of_folders: set[str]) -> LeftOut:
    """The checks of machines in folders whose host has a newer one or the same among them."""
    reports = {
        name: document.held
        for name, document in others
        if name in of_folders and isinstance(document.held, CheckReport)
    }
    return left_out(reports)


def _in_order(sweeps: Sequence[_SweepFile]) -> Iterator[_SweepFile]:
    """Named files as they are; the sweeps of each directory by the time of the run."""
    for folder, group in itertools.groupby(sweeps, key=lambda sweep: sweep.folder):
        of_folder = list(group)
        if folder and len(of_folder) > 1:
            for sweep in of_folder:
                if sweep.start_s == math.inf:
                    print_err(
                        f"note: {sweep.file} does not say when it was measured, so it follows those"
                        " that do"
                    )
            of_folder.sort(key=lambda sweep: sweep.start_s)
        yield from of_folder


def expand(files: Sequence[str]) -> list[tuple[str, str]]:
    """Every file, and the directory that was searched for it; '' for a named file."""
    pairs: list[tuple[str, str]] = []
    for file in files:
        path = Path(file)
        if file != "-" and path.is_dir():
            pairs += [(str(inner), file) for inner in files_in(path)[0]]
        else:
            pairs.append((file, ""))
    return pairs


def _unread(files: Sequence[str]) -> list[str]:
    """For each directory that has more than the files that were taken from it, what that is."""
    texts = []
    for folder in (Path(file) for file in files if file != "-" and Path(file).is_dir()):
        left = [f"{path.name}/" if path.is_dir() else path.name for path in files_in(folder)[1]]
        if left:
            texts.append(f"not read of {folder}: {listed(left)}")
    return texts


def _document(result: Outcome) -> FileContent:
    title = kind(result).removeprefix("a ")
    kind_of_run = kind_of(result)

    def text(width: int | None) -> str:
        if kind_of_run.brief_text is not None:
            return kind_of_run.brief_text(result, width)
        return render(result, "table", width=width)

    parts = partial(kind_of_run.parts, result)
    return FileContent(f"{title[:1].upper()}{title[1:]}", text, result, parts=parts)
