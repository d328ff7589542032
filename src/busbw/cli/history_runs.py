"""`busbw history rm` and `export`, which are about single runs."""

import sys
from pathlib import Path

import click

from busbw.cli.options.history import HELP, db_option, filters, naming_run
from busbw.cli.options.parameters import File
from busbw.cli.streams import print_err, print_out
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import Exit, UsageError
from busbw.core.sizes import counted
from busbw.history import exported
from busbw.history.store import History, opened
from busbw.measure.record import check_writable, save


@click.command("rm", context_settings=HELP)
@click.argument("ids", nargs=-1, required=True, type=int, metavar="ID...")
@click.option("--yes", is_flag=True, help="do not ask")
@db_option
def rm(ids: tuple[int, ...], yes: bool, db: Path) -> int:
    """Remove runs, by their IDs in `busbw history`: all of them, or none when one does not
    exist.

    Asks first, and then exits with 130 if the answer is no.
    """
    with opened(db, create=False) as history:
        for id in ids:
            history.text(id)
        if not yes:
            _ask(ids)
        history.remove(ids)
    print_err(f"removed {counted(len(set(ids)), 'run')}")
    return int(Exit.OK)


def _ask(ids: tuple[int, ...]) -> None:
    """Abort unless the user agrees; UsageError if nobody can answer."""
    if not sys.stdin.isatty():
        raise UsageError("rm asks before it removes runs, and stdin is not a terminal", "add --yes")
    runs = ", ".join(f"run {id}" for id in dict.fromkeys(ids))
    if not click.confirm(f"remove {runs}?", err=True):
        print_err("nothing was removed")
        raise click.Abort


@click.command("export", context_settings=HELP)
@click.argument("ids", nargs=-1, type=int, metavar="[ID...]")
@click.option(
    "--directory",
    type=File(),
    help="write a file for each run, run-ID.json, instead of lines on stdout",
)
@click.option("--force", is_flag=True, help="replace existing files")
@filters
@db_option
def export(
    ids: tuple[int, ...],
    directory: Path | None,
    force: bool,
    machine: str,
    collective: str,
    db: Path,
) -> int:
    """Print runs as JSON lines, oldest first: those with these IDs, or all. `busbw history add`
    reads them back without loss.

    Each line, and each file of --directory, is a result that busbw show reads.
    """
    if ids and (machine or collective):
        raise UsageError(
            "IDs and --machine or --collective exclude each other", "busbw history export --help"
        )
    name = collective_row(collective).name if collective else ""
    with opened(db, create=False) as history:
        runs = {id: history.start(id) for id in ids}
        if not ids:
            runs = {run.id: run.start for run in reversed(history.runs(machine, name))}
        lines = ((id, _line(history, id, start)) for id, start in runs.items())
        if not runs:
            print_err("no such run")
        elif directory is None:
            for _, line in lines:
                print_out(line)
        else:
            _write(dict(lines), directory, force=force)
    return int(Exit.OK)


def _line(history: History, id: int, start: str) -> str:
    text = history.text(id)
    with naming_run(id):
        return exported.line(text, start)


def _write(lines: dict[int, str], directory: Path, *, force: bool) -> None:
    """Write a file for each run, or none if one exists. Their names are printed last."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{directory}: {error.strerror}", "name another directory with --directory"
        ) from error
    files = {directory / f"run-{id}.json": line for id, line in lines.items()}
    for file in files:
        check_writable(file, overwrite=force, what=str(file))
    for file, line in files.items():
        save(exported.indented(line), file, "make room, or name another directory with --directory")
    print_out("".join(f"{file}\n" for file in files))


COMMANDS = (rm, export)
