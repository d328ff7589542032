"""Help in groups: every option is in exactly one, and every help fits 80 columns."""

import re
from collections import Counter
from collections.abc import Iterator

import click
import pytest

from busbw.cli.main import cli, guarded
from busbw.cli.options.grouped import OTHERS, GroupedCommand, sections
from busbw.cli.options.groups import MOST_USED
from busbw.cli.options.parameters import Seconds
from busbw.core.errors import UsageError

COLUMNS = 80
TIMED = re.compile(r"\bseconds\b|_s\b")
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


INTEGERS_OF_OTHERS = {"run --timeout": "nccl-tests' -T"}  # of seconds; all of Horovod's as well


def test_every_option_of_seconds_takes_a_time_with_its_unit() -> None:
    others = [
        f"{name} {max(option.opts, key=len)}"
        for name, command in ALL.items()
        for option in command.params
        if isinstance(option, click.Option)
        and TIMED.search(f"{option.name} {option.help}")
        and not isinstance(option.type, Seconds)
        and name != "horovodrun"
    ]
    assert others == list(INTEGERS_OF_OTHERS)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("2m", 120), ("1.5 min", 90), ("1h", 3600), ("500ms", 0.5)],
)
def test_a_time_has_any_unit(text: str, seconds: float) -> None:
    assert Seconds().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "25h", "2d", "nan", "soon", ""])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be seconds above 0, at most 86400"):
        Seconds().convert(text, None, None)


def test_a_time_may_have_to_be_whole() -> None:
    minute = Seconds(least=60, whole=True)
    assert str(minute.convert("5m", None, None)) == "300"
    with pytest.raises(UsageError, match=r"60\.5: must be whole seconds from 60 to 86400"):
        minute.convert("60.5", None, None)


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
