"""`busbw check --nagios`: errors as one line for a monitor, which shows nothing else."""

import platform
from typing import Any

import click

from busbw.check.brief import brief_without
from busbw.cli.checks.arguments import refuse_checks_as_commands, refuse_files_as_commands
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.streams import print_out
from busbw.core.errors import BusbwError
from busbw.core.finding import Verdict


def _answer_unknown(name: str, reason: str) -> int:
    """Print the line of a machine that was not checked; returns the exit code."""
    reason = reason.removeprefix(f"{name}: ")
    code, line = brief_without(name or platform.node(), reason, Verdict.UNKNOWN)
    print_out(line)
    return code


class BriefGroup(GroupedCommand, click.Group):
    """With --nagios, options that are wrong give the line and code of unknown too: the usual code
    2 would mean critical.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        brief = "--nagios" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except (BusbwError, click.ClickException) as error:
            if not brief:
                raise
            raise click.exceptions.Exit(_answer_unknown("", error.message)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand; files and names of checks in its place have hints of their own."""
        if args[0] not in self.commands:
            refuse_files_as_commands(args)
            refuse_checks_as_commands(args[0], self.commands)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """The exit code of the command; with --nagios, errors are a line on stdout and code 3."""
        try:
            return super().invoke(ctx)
        except BusbwError as error:
            options = ctx.params
            if not options["brief"]:
                raise
            name = ", ".join(options["files"]) or options["hosts"] or str(options["hostfile"] or "")
            return _answer_unknown(name, error.message)
