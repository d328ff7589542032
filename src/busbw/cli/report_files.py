"""What a report is made of: the files of its command line, and those of its directories."""

from collections.abc import Sequence
from pathlib import Path

from busbw.cli.documents import files_in, load
from busbw.cli.streams import talk
from busbw.cli.sweep_files import noted
from busbw.core.errors import UsageError
from busbw.core.result import AnyResult, Result, TrainResult
from busbw.views import training
from busbw.views.documents import Document
from busbw.views.html.others import Others
from busbw.views.registry import kind, render


def gathered(files: Sequence[str], collective: str | None, table: int | None) -> tuple[list[tuple[str, Result]], Others]:
    """The sweeps, and everything else. A named file that cannot be read is a UsageError; one of a directory is noted and skipped."""
    sweeps: list[tuple[str, Result]] = []
    others: list[tuple[str, Document]] = []
    skipped: list[tuple[str, str]] = []
    for file, searched in expanded(files):
        try:
            found = load(file, collective, table)
        except UsageError as error:
            if not searched:
                raise
            talk(f"warning: skipped {error.message}")
            skipped.append((file, error.message.removeprefix(f"{file}: ")))
            continue
        if isinstance(found, Result):
            sweeps.append((file, noted(found, file)))
        else:
            others.append(("stdin" if file == "-" else file, found if isinstance(found, Document) else _document(found)))
    if not sweeps and not others:
        raise UsageError(f"{files[0]}: none of its files can be read", "busbw show FILE says what is wrong with one")
    return sweeps, Others(others, skipped)


def expanded(files: Sequence[str]) -> list[tuple[str, bool]]:
    """Every file, and whether it was found in a directory."""
    found: list[tuple[str, bool]] = []
    for file in files:
        path = Path(file)
        found += [(str(one), True) for one in files_in(path)] if file != "-" and path.is_dir() else [(file, False)]
    return found


def _document(result: AnyResult) -> Document:
    """A training, plan or replay; of a training of methods the table alone, without a line for each iteration."""
    title = kind(result).removeprefix("a ")

    def text(width: int | None) -> str:
        if isinstance(result, TrainResult) and not result.training.spec.states:
            return training.header(result, width) + training.footer(result, width)
        return render(result, "table", width=width)

    return Document(f"{title[:1].upper()}{title[1:]}", text, result)
