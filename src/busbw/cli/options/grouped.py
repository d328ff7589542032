"""Commands whose help lists options in groups."""

import re
from typing import Any

import click

from busbw.cli.options.groups import Groups

PLAIN, OTHERS = "Options", "Other options"
NAMES_WIDTH = 30  # longer names stand on a line of their own
# In the names of an option: nccl-tests' spelling, which the reference has, and click's word for a
# number with bounds, which the text after it states.
_LEFT_OUT = re.compile(r", --\w*_\w+| RANGE$")

Record = tuple[str, str]  # the names of an option, and its help


class GroupedCommand(click.Command):
    """A command, or with click.Group a group of them, with its options in `groups`."""

    def __init__(self, *arguments: Any, groups: Groups = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, all with the same width of names; then the subcommands
        of a group.
        """
        found = sections(self, ctx)
        names = [name for _, records in found for name, _ in records]
        widest = max((len(name) for name in names if len(name) <= NAMES_WIDTH), default=0)
        for heading, records in found:
            with formatter.section(heading):
                padded = [(name.ljust(widest), text) for name, text in records]
                formatter.write_dl(padded, col_max=widest)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def sections(command: click.Command, context: click.Context) -> list[tuple[str, list[Record]]]:
    """The headings of a command's options, and what stands under each."""
    records = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            records[parameter.name] = (_LEFT_OUT.sub("", record[0]), record[1])
    if not isinstance(command, GroupedCommand):
        return [(PLAIN, list(records.values()))]
    found = []
    for heading, parameters in command.groups:
        shown = [records.pop(name) for name in parameters if name in records]
        found.append((heading, shown))
    return [*found, (OTHERS, list(records.values()))]
