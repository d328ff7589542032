"""The arguments of `busbw check`: names of checks, and snapshots."""

from collections.abc import Collection, Sequence
from glob import glob
from pathlib import Path

import click

from busbw.check.registry import BY_NAME, find_row
from busbw.check.shell_words import word
from busbw.cli.file_kinds import load, note_unread
from busbw.cli.options.parameters import is_given
from busbw.cli.streams import print_err
from busbw.core.errors import UsageError, similar_names
from busbw.core.host_ranges import listed
from busbw.host.snapshot import MADE_BY, archives_in, is_tree, recorded
from busbw.host.source import Source


def known(
    _context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """The callback of --only and --skip: names or ids of checks; UsageError for any other."""
    for name in names:
        find_row(name)
    return names


def matching_files(files: Sequence[str]) -> tuple[str, ...]:
    """The named files, those that match patterns, and the snapshots in folders."""
    matching_any: list[str] = []
    for file in files:
        is_pattern = set("*?[") & set(file) and not Path(file).exists()
        matching = _matches(file) if is_pattern else archives_in(file) or [file]
        if matching == [file] and Path(file).is_dir() and not is_tree(Path(file)):
            raise hinted(UsageError(f"--from {file}: no snapshot in this folder", MADE_BY), file)
        if not matching:
            raise UsageError(f"--from {file}: no file matches", "busbw check --save FILE makes one")
        note_unread(file)
        matching_any += matching
    return tuple(matching_any)


def machine_in(file: str) -> Source:
    """The machine of a snapshot, a kernel log or a copy of its files; UsageError for another."""
    try:
        return recorded(Path(file))
    except UsageError as error:
        raise hinted(error, file) from error


def hinted(error: UsageError, file: str) -> UsageError:
    """The error for a file or folder of another kind, whose hint names `busbw show` if that reads
    it, such as the log of a job.
    """
    if not Path(file).exists():
        return error
    try:
        load(file)
    except UsageError:
        return error
    return UsageError(error.message, f"busbw show {word(file)}")


def _matches(pattern: str) -> list[str]:
    """The files and folders; a pipe among them, which may have no writer, is noted."""
    found = sorted(glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern
    special = [file for file in found if not (Path(file).is_file() or Path(file).is_dir())]
    if special:
        print_err(f"note: not read: {listed(special)}")
    return [file for file in found if file not in special]


def refuse_files_as_commands(words: Sequence[str]) -> None:
    """UsageError for a file in place of a subcommand: the shell expanded a pattern after --from."""
    if Path(words[0]).is_file():
        raise UsageError(
            f"{words[0]}: --from takes one file, or a pattern in quotes",
            "busbw check --from '*.jsonl'",
        )


def refuse_checks_as_commands(word: str, commands: Collection[str]) -> None:
    """UsageError for a word that is no subcommand; most likely it is a check, or close to one."""
    if word.startswith("-") or similar_names(word, commands):
        return  # click names the subcommand
    named = [BY_NAME[name].name for name in similar_names(word, BY_NAME)]
    if word.upper() in BY_NAME:
        named = [word]
    if named:
        raise UsageError(
            f"busbw check has no part '{word}'",
            f"for a check by its name: busbw check --only {named[0]}, or busbw check explain"
            f" {' '.join(named)}",
        )


def refuse_before_subcommand(context: click.Context, subcommand: str) -> None:
    """UsageError for an option before the name of a subcommand."""
    for parameter in context.command.params:
        if parameter.expose_value and parameter.name and is_given(parameter.name):
            raise UsageError(
                f"{parameter.opts[0]} stands before {subcommand}, which does not read it",
                "give options of a command after its name",
            )
