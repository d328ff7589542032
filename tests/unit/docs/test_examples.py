"""The table of commands: complete, and its examples parse and appear in --help."""

import re
from pathlib import Path

import click
import pytest

import busbw.cli
import busbw_accel.cli
from busbw.cli.commands import PURPOSES, Examples
from busbw.cli.commands import commands as table_rows
from busbw.cli.main import cli

from .test_written import commands, problem

MOST = 96  # characters of a line of an example

ROWS = table_rows()
PATHS: list[tuple[str, Examples]] = [
    *((row.name, row.examples()) for row in ROWS),
    *((f"{row.name} {part}", examples) for row in ROWS for part, examples in row.parts().items()),
]


def command(path: str) -> click.Command:
    name, _, part = path.partition(" ")
    cli_command = cli.get_command(click.Context(cli), name)
    assert cli_command is not None
    if not part:
        return cli_command
    assert isinstance(cli_command, click.Group)
    return cli_command.commands[part]


def test_every_module_with_a_command_has_a_row() -> None:
    folders = [Path(package.__file__).parent for package in (busbw.cli, busbw_accel.cli)]
    modules = (path for folder in folders for path in folder.glob("*.py"))
    command_parts = {
        path.stem
        for path in modules
        if re.search(r"^def command\(|^command = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    parts = {f"{row.name}_{part}" for row in ROWS for part in row.parts()}
    assert command_parts - parts == {row.name for row in ROWS}
    assert {row.purpose for row in ROWS} == set(PURPOSES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_subcommands_are_those_of_the_row(row) -> None:
    cli_command = command(row.name)
    assert set(row.parts()) == (
        set(cli_command.commands) if isinstance(cli_command, click.Group) else set()
    )


@pytest.mark.parametrize(("path", "examples"), PATHS, ids=[path for path, _ in PATHS])
def test_three_examples_that_parse_and_appear_in_the_help(path: str, examples: Examples) -> None:
    assert len(examples) >= 3
    assert any(f"busbw {path}" in line for line in examples.values())
    cli_command = command(path)
    help_text = cli_command.get_help(
        click.Context(
            cli_command,
            info_name=f"busbw {path}",
            terminal_width=80,
            **cli_command.context_settings,
        )
    )
    for meaning, line in examples.items():
        assert max(len(meaning), len(line)) <= MOST
        parsed = commands(f"```sh\n{line}\n```\n")
        assert parsed or "busbw" not in line
        assert [problem(words) for words in parsed if problem(words)] == []
        assert f"    # {meaning}\n    {line}" in help_text
