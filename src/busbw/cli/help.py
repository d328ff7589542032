"""`busbw help COMMAND`: the same as `busbw COMMAND --help`."""

import click

from busbw.cli.streams import print_out
from busbw.core.errors import Exit, UsageError, did_you_mean


@click.command("help", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", metavar="[COMMAND [PART]]", nargs=-1)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> int:
    """Print all that a command takes, as `busbw COMMAND --help` does.

    Without a command it lists all commands; `busbw COMMAND -h` has only the most used options.
    """
    shown = context.find_root()
    for word in words:
        shown = click.Context(_part(shown, word), info_name=word, parent=shown)
    print_out(shown.get_help() + "\n")
    return int(Exit.OK)


def _part(context: click.Context, word: str) -> click.Command:
    """The command of this name in a group; UsageError if there is none."""
    path, group = context.command_path, context.command
    if not isinstance(group, click.Group):
        raise UsageError(f"{path} has no part '{word}'", f"{path} --help")
    if context.parent is None:
        _, command, _ = group.resolve_command(context, [word])
    else:
        command = group.get_command(context, word)
    if command is None:
        names = group.list_commands(context)
        raise UsageError(
            f"{path} has no part '{word}'",
            did_you_mean(word, names, f"{path} --help lists its parts"),
        )
    return command
