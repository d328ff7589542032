"""The manual pages: complete, and roff that man shows without a complaint."""

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from busbw.cli.commands import commands
from busbw.cli.main import cli

ROOT = Path(__file__).parents[3]
PAGES = {
    page.name: page
    for folder in ("docs/man", "accel/man")
    for page in sorted((ROOT / folder).glob("*.1"))
}
LINTS = {
    "groff": ["groff", "-ww", "-man", "-Tutf8", "-z"],
    "mandoc": ["mandoc", "-Tlint", "-Werror"],
}


@pytest.mark.parametrize("program", LINTS)
def test_no_page_has_an_error(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"no {program}: make test-tools")
    result = subprocess.run(
        [*LINTS[program], *map(str, PAGES.values())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.stdout + result.stderr, result.returncode) == ("", 0)


def test_there_is_a_page_for_each_command() -> None:
    assert set(PAGES) == {"busbw.1", *(f"busbw-{row.name}.1" for row in commands())}


def rendered(page: Path) -> str:
    """The page as a person reads it, on one line."""
    result = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-cbou", page],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return " ".join(result.stdout.split())


@pytest.mark.parametrize("row", commands(), ids=lambda row: row.name)
def test_a_page_shows_every_option_and_example_as_it_is_typed(row) -> None:
    if not shutil.which("groff"):
        pytest.skip("no groff: make test-tools")
    text = rendered(PAGES[f"busbw-{row.name}.1"])
    command = cli.get_command(click.Context(cli), row.name)
    assert command is not None
    parts = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
    options = {
        name
        for part in parts
        for parameter in part.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in parameter.opts
    }
    assert [name for name in options if not re.search(rf"(?<![\w-]){name}(?![\w-])", text)] == []
    all_examples = (row.examples(), *row.parts().values())
    lines = [line for examples in all_examples for line in examples.values()]
    assert [line for line in lines if line not in text] == []
