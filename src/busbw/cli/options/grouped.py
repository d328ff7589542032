"""Commands whose help lists options in groups: `-h` those of the first, `--help` all."""

import inspect
import re
from itertools import chain
from typing import Any

import click

from busbw.cli.options.groups import MOST_USED, Groups

PLAIN, OTHERS = "Options", "Other options"
NAMES_WIDTH = 30  # longer names stand on a line of their own
_UNDERSCORE = r", --\w*_\w+"  # nccl-tests' spelling, which the manual page has
_RANGE = " RANGE"  # click's word after the type of a number with bounds, which the help states

Record = tuple[str, str]  # the names of an option, and its help
Section = tuple[str, list[Record]]  # a heading, and the options under it


class GroupedCommand(click.Command):
    """A command, or with click.Group a group of them, with its options in `groups`."""

    def __init__(self, *arguments: Any, groups: Groups = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.groups = groups
        if [heading for heading, _ in groups[:1]] == [MOST_USED]:
            self.params.append(_short_help_option())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group with names of one width, then the subcommands."""
        self._write(sections(self, ctx), ctx, formatter)

    def short_help_text(self, ctx: click.Context) -> str:
        """What the command does, its most used options, and examples."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(self.help or "").partition("\n\n")[0])
        groups = sections(self, ctx)
        self._write(groups[:1], ctx, formatter)
        self.format_epilog(ctx, formatter)
        count = sum(len(records) for _, records in groups)
        formatter.write(f"\n`{ctx.command_path} --help` shows all {count} options.\n")
        return formatter.getvalue().rstrip("\n")

    def _write(
        self, groups: list[Section], ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        shown = [(heading, _shown(records)) for heading, records in groups]
        lengths = [len(names) for _, records in shown for names, _ in records]
        widest = max((length for length in lengths if length <= NAMES_WIDTH), default=0)
        for heading, records in shown:
            with formatter.section(heading):
                padded = [(names.ljust(widest), text) for names, text in records]
                formatter.write_dl(padded, col_max=widest)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def _short_help_option() -> click.Option:
    """-h, which leaves --help to click."""
    return click.Option(
        ["-h"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_short_help,
        help="show the most used options and exit",
    )


def _print_short_help(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing and isinstance(context.command, GroupedCommand):
        click.echo(context.command.short_help_text(context), color=context.color)
        context.exit()


def _shown(records: list[Record]) -> list[Record]:
    """The records as help prints them."""
    return [(re.sub(_UNDERSCORE, "", names), text) for names, text in records]


def sections(command: click.Command, context: click.Context) -> list[Section]:
    """The headings of a command's options, and what stands under each."""
    records: dict[str, list[Record]] = {}  # several flags may set one parameter
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            names, text = record
            records.setdefault(parameter.name or "", []).append((names.removesuffix(_RANGE), text))
    if not isinstance(command, GroupedCommand):
        return [(PLAIN, list(chain.from_iterable(records.values())))]
    grouped = []
    for heading, parameters in command.groups:
        shown = [records.pop(name) for name in parameters if name in records]
        grouped.append((heading, list(chain.from_iterable(shown))))
    return [*grouped, (OTHERS, list(chain.from_iterable(records.values())))]
