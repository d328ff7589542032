"""Options of `busbw manifest` that hold the words of another busbw command."""

import click

from busbw.cli.check import command as check_command
from busbw.cli.options.parameters import shell_words
from busbw.core.errors import UsageError

# With these the exit code or the output is not that of the checks of this machine.
_OTHER_OUTPUT = ("--brief", "--list")


def parse_check(text: str) -> list[str]:
    """Options of `busbw check`; UsageError for those with which its exit code does not judge
    this machine.
    """
    words = parse("--check", check_command, text)
    other = next((word for word in words if word in _OTHER_OUTPUT), None)
    if other:
        raise UsageError(
            f"--check '{text}': with {other} the exit code is not that of busbw check",
            f"leave out {other}",
        )
    return words


def parse(option: str, command: click.Command, text: str) -> list[str]:
    """Words that `busbw COMMAND` accepts; UsageError for others, because a step that cannot start
    would protect no job.
    """
    words = shell_words(option, text)
    try:
        if words:
            command.make_context(command.name, list(words))
    except click.ClickException as error:
        raise UsageError(
            f"{option} '{text}': {error.format_message()}", f"busbw {command.name} --help"
        ) from error
    return words
