"""Help in groups: every option is in exactly one, and every help fits 80 columns."""

from collections import Counter
from collections.abc import Iterator

import click
import pytest

from busbw.cli.main import cli, guarded
from busbw.cli.options.grouped import OTHERS, GroupedCommand, sections
from busbw.cli.options.groups import MOST_USED

COLUMNS = 80
OF_EVERY_COMMAND = {"color", "config", "h", "verbose", "version", "wide"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and subcommand, by its path."""
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from (
                (f"{name} {part}", subcommand) for part, subcommand in command.commands.items()
            )


def context_of(name: str) -> click.Context:
    """The context of a command in a terminal of 80 columns."""
    command = ALL[name]
    return click.Context(
        command, info_name=f"busbw {name}", terminal_width=COLUMNS, **command.context_settings
    )


ALL = dict(commands())
GROUPED = {name: command for name, command in ALL.items() if isinstance(command, GroupedCommand)}


def test_the_longest_helps_are_grouped() -> None:
    long = {name for name, command in ALL.items() if len(command.params) > 20}
    assert long <= GROUPED.keys()


@pytest.mark.parametrize("name", GROUPED)
def test_every_option_stands_in_one_group(name: str) -> None:
    command = GROUPED[name]
    listed = Counter(parameter for _, group in command.groups for parameter in group)
    assert [parameter for parameter, times in listed.items() if times > 1] == []
    options = [option for option in command.params if isinstance(option, click.Option)]
    names = {option.name for option in options if not option.hidden}
    assert listed.keys() <= names
    assert names - listed.keys() <= OF_EVERY_COMMAND
    *_, (heading, others) = sections(command, context_of(name))
    assert heading == OTHERS
    assert others[-1][0] == ("--help" if command.groups[0][0] == MOST_USED else "-h, --help")


@pytest.mark.parametrize("name", ALL)
def test_help_fits_a_terminal(name: str) -> None:
    help_text = ALL[name].get_help(context_of(name))
    assert [line for line in help_text.splitlines() if len(line) > COLUMNS] == []
    assert "Examples:" in help_text


@pytest.mark.parametrize("name", [name for name in GROUPED if name != "horovodrun"])
def test_short_help_has_the_most_used_options(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    assert guarded([name, "-h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (_, most_used), *_ = sections(GROUPED[name], context_of(name))
    shown = [line.split()[0].strip(",") for line in lines if line.startswith("  -")]
    assert shown == [names.split()[0].strip(",") for names, _ in most_used]
    assert f"`busbw {name} --help` shows all" in lines[-1]
    assert len(lines) <= 40
    assert max(map(len, lines)) <= COLUMNS


@pytest.mark.parametrize("words", [[], ["run"], ["check", "launch"]])
def test_help_is_also_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded([*words, "--help"]) == 0
    expected = capsys.readouterr().out
    assert guarded(["help", *words]) == 0
    assert capsys.readouterr().out == expected
