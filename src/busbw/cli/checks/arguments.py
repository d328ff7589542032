"""The arguments of `busbw check`: names of checks, and snapshots."""

from collections.abc import Collection, Sequence
from glob import glob
from pathlib import Path

import click

from busbw.check.registry import BY_NAME, find_row
from busbw.cli.options.parameters import is_given
from busbw.core.errors import UsageError, similar_names
from busbw.host.snapshot import MADE_BY, archives_in, is_tree


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
        # Path.glob takes no absolute pattern.
        matching = sorted(glob(file)) if is_pattern else archives_in(file) or [file]  # noqa: PTH207
        if matching == [file] and Path(file).is_dir() and not is_tree(Path(file)):
            raise UsageError(f"--from {file}: no snapshot in this folder", MADE_BY)
        if not matching:
            raise UsageError(f"--from {file}: no file matches", "busbw check --save FILE makes one")
        matching_any += matching
    return tuple(matching_any)


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
