"""What a report is made of: the files of its command line, and those of its directories."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from busbw.cli.file_kinds import files_in, load
from busbw.cli.streams import talk
from busbw.cli.sweep_files import noted
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.report.file_kinds import Document
from busbw.report.other_reports import Others
from busbw.report.registry import kind, render
from busbw.report.results import AnyResult
from busbw.train import text as train_text
from busbw.train.kinds import TrainResult


@dataclass(frozen=True, slots=True)
class _Sweep:
    """A sweep, its file, and the directory that was searched for it."""

    file: str
    result: Result
    folder: str

    @property
    def start_s(self) -> float:
        """When it started, in seconds since the epoch; infinity where the file does not say."""
        try:
            return datetime.fromisoformat(self.result.start).timestamp()
        except ValueError:
            return math.inf


def gathered(
    files: Sequence[str], collective: str | None, table: int | None
) -> tuple[list[tuple[str, Result]], Others]:
    """The sweeps, and everything else. A named file that cannot be read is a UsageError; one of a
    directory is noted and skipped.

    Named files are in the order of the command line. The sweeps of a directory are by the time of
    the run, so that the first is the earliest; those whose time is not known follow.
    """
    sweeps: list[_Sweep] = []
    others: list[tuple[str, Document]] = []
    skipped: list[tuple[str, str]] = []
    for file, folder in expanded(files):
        try:
            found = load(file, collective, table)
        except UsageError as error:
            if not folder:
                raise
            talk(f"warning: skipped {error.message}")
            skipped.append((file, error.message.removeprefix(f"{file}: ")))
            continue
        if isinstance(found, Result):
            sweeps.append(_Sweep(file, noted(found, file), folder))
        else:
            others.append(
                (
                    "stdin" if file == "-" else file,
                    found if isinstance(found, Document) else _document(found),
                )
            )
    if not sweeps and not others:
        raise UsageError(
            f"{files[0]}: none of its files can be read",
            "busbw show FILE says what is wrong with one",
        )
    return [(one.file, one.result) for one in _in_order(sweeps)], Others(others, skipped)


def _in_order(sweeps: Sequence[_Sweep]) -> Iterator[_Sweep]:
    for folder, group in itertools.groupby(sweeps, key=lambda one: one.folder):
        own = list(group)
        if folder and len(own) > 1:
            for one in own:
                if one.start_s == math.inf:
                    talk(
                        f"note: {one.file} does not say when it was measured, so it follows those"
                        " that do"
                    )
            own.sort(key=lambda one: one.start_s)
        yield from own


def expanded(files: Sequence[str]) -> list[tuple[str, str]]:
    """Every file, and the directory that was searched for it; '' for a named file."""
    found: list[tuple[str, str]] = []
    for file in files:
        path = Path(file)
        found += (
            [(str(one), file) for one in files_in(path)]
            if file != "-" and path.is_dir()
            else [(file, "")]
        )
    return found


def _document(result: AnyResult) -> Document:
    """A training, plan or replay; of a training of methods the table alone, without a line for
    each iteration.
    """
    title = kind(result).removeprefix("a ")

    def text(width: int | None) -> str:
        if isinstance(result, TrainResult) and not result.training.spec.states:
            return train_text.header(result, width) + train_text.footer(result, width)
        return render(result, "table", width=width)

    return Document(f"{title[:1].upper()}{title[1:]}", text, result)
