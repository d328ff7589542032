"""The table of all commands. `--help`, the man page and the reference are made from it.

A new command is a row in the module of its purpose, and a module of its name in this package, whose
`command` is what click runs. Extensions add rows of their own.
"""

import click

from busbw.cli.table import check, measure, results, setup, train
from busbw.cli.table.row import PURPOSES, Examples, Row
from busbw.core.extensions import added

__all__ = [
    "BY_NAME",
    "PURPOSES",
    "Examples",
    "Row",
    "command_row",
    "commands",
    "examples_text",
    "with_examples",
]

_ROWS: tuple[Row, ...] = (*measure.ROWS, *check.ROWS, *train.ROWS, *results.ROWS, *setup.ROWS)
BY_NAME: dict[str, Row] = {row.name: row for row in _ROWS}


def commands() -> list[Row]:
    """All rows by purpose, also those of extensions."""
    rows = [*_ROWS, *(row for rows in added("commands") for row in rows)]
    return sorted(rows, key=lambda row: PURPOSES.index(row.purpose))


def command_row(name: str) -> Row | None:
    """The row of a command; extensions are asked for names that busbw itself does not have."""
    return BY_NAME.get(name) or next((row for row in commands() if row.name == name), None)


def with_examples(command: click.Command, row: Row) -> click.Command:
    """The command of this row, with the examples at the end of its help and of its subcommands'."""
    command.epilog = examples_text(row.examples)
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            part.epilog = examples_text(row.examples_of(name))
    return command


def examples_text(examples: Examples) -> str:
    """The examples as lines that click does not wrap: what each does as a comment, then the
    command.
    """
    lines = [f"  # {meaning}\n  {command}" for meaning, command in examples]
    return "\b\nExamples:\n" + "\n".join(lines)
