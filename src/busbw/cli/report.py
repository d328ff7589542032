"""`busbw report FILE...`: results as one HTML page to send or to keep.

What a report is made of: the files of its command line, and those of its directories.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from shlex import quote

import click

from busbw.cli.shared_options import File, not_empty
from busbw.cli.show import files_in, load, noted, table_option
from busbw.cli.streams import answer, talk
from busbw.core.cells import Comparison, headline
from busbw.core.errors import Exit, UsageError
from busbw.core.result import Result
from busbw.host.signature import NAMESPACE, sign
from busbw.host.signature import signer as signer_line
from busbw.measure.record import check_writable, save
from busbw.report.file_kinds import Document
from busbw.report.other_reports import Others
from busbw.report.other_reports import page as page_of_others
from busbw.report.page import page
from busbw.report.registry import kind, render
from busbw.report.results import AnyResult
from busbw.report.rows import ReportInput, alike
from busbw.stats.compare import compare
from busbw.train import text as train_text
from busbw.train.types import TrainResult


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


DEFAULT = "report.html"


@click.command("report", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "-o",
    "--output",
    callback=not_empty,
    help=(
        "where the page goes, - = stdout; by default next to the first FILE, with its name and"
        " .html, or in it as report.html"
    ),
)
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of a log that does not name it",
)
@table_option
@click.option(
    "--sign",
    "key",
    type=File(),
    metavar="KEY",
    help="put the results into the page and sign it with this OpenSSH key: FILE.sig",
)
def command(
    files: tuple[str, ...],
    output: str | None,
    collective: str | None,
    table: int | None,
    key: Path | None,
) -> int:
    """Write FILE... (- = stdin) as one self-contained HTML page, and print its path.

    Reads what busbw show reads: sweeps, trainings, plans, replays, patterns, checks, tests of
    links, snapshots. Up to 8 sweeps fit. Those of one collective, engine and number of ranks share
    plots, and are compared with the first of them. A directory stands for its files that end in
    .json, .jsonl, .log, .table or .txt, sweeps by the time of the run; those that cannot be read
    are named and left out. Exit code 1 when one was left out, or a result holds wrong data; 3 when
    no cell of any sweep reached its precision.

    With --sign the command that verifies the signature is printed too.
    """
    target = _target(files, output)
    if target is not None:
        check_writable(target, what=str(target))
    if key is not None and target is None:
        raise UsageError("--sign signs a file, and -o - is stdout", "name a file with -o")
    sweeps, others = gathered(files, collective, table)
    if key is not None and others.files:
        raise UsageError(f"--sign is for sweeps, and {others.files[0][0]} is none", "leave it out")
    if sweeps:
        named = list(
            zip(_names([name for name, _ in sweeps]), (result for _, result in sweeps), strict=True)
        )
        made = page(named, _comparisons(named), embed=key is not None, others=others)
    else:
        made = page_of_others(others)
    if target is None:
        answer(made)
    else:
        save(made, target, "make room, or write to another place with -o", shared=True)
        answer(f"{target}\n")
        if key is not None:
            answer(_signed(target, key))
    if others.skipped or any(result.wrong() for _, result in sweeps):
        return int(Exit.BAD)
    return int(
        Exit.UNKNOWN
        if sweeps and all(headline(result) is None for _, result in sweeps)
        else Exit.OK
    )


def _target(files: tuple[str, ...], output: str | None) -> Path | None:
    """Where the page goes, None for stdout; UsageError where that is one of the results."""
    if output == "-":
        return None
    first = Path(files[0])
    named = (
        first / DEFAULT
        if first.is_dir()
        else Path(DEFAULT)
        if files[0] == "-"
        else first.with_suffix(".html")
    )
    target = Path(output) if output else named
    for file, _ in expanded(files):
        if file != "-" and target.exists() and Path(file).exists() and target.samefile(file):
            raise UsageError(
                f"{target}: the page would overwrite a result", f"busbw report {file} -o {DEFAULT}"
            )
    return target


def _names(files: Sequence[str]) -> list[str]:
    """The names of the files, with their folders where two would read the same."""
    short = ["stdin" if file == "-" else Path(file).name for file in files]
    return [
        name if short.count(name) == 1 else file for name, file in zip(short, files, strict=True)
    ]


def _comparisons(named: Sequence[tuple[str, Result]]) -> dict[int, Comparison]:
    """Each result compared with the first one of its collective, engine and number of ranks."""
    inputs = [ReportInput(index, name, result) for index, (name, result) in enumerate(named)]
    return {
        one.index: compare([named[first.index]], [named[one.index]])
        for first, *others in alike(inputs)
        for one in others
    }


def _signed(target: Path, key: Path) -> str:
    """Sign the page; the signature's path, and how a receiver verifies it."""
    signature, signer = sign(target, key), signer_line(key)
    checked = f"-n {NAMESPACE} -s {quote(str(signature))} < {quote(str(target))}"
    if not signer:
        return f"{signature}\n\nverify with:\n  ssh-keygen -Y check-novalidate {checked}\n"
    return (
        f"{signature}\n\n"
        f"verify with:\n"
        f"  echo {quote(signer)} > signers\n"
        f"  ssh-keygen -Y verify -f"
        f" signers -I {NAMESPACE} {checked}\n"
    )
