"""`busbw check --brief`: errors as one line for a monitor like Nagios, which shows nothing else."""

import platform
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from busbw.check.brief import brief_without
from busbw.cli.streams import answer
from busbw.core.errors import BusbwError
from busbw.core.finding import Verdict


def brief_errors(run: Callable[..., int | None]) -> Callable[..., int | None]:
    """`run`, whose errors are a line on stdout and exit code 3 with --brief."""

    @wraps(run)
    def guarded(context: click.Context, **options: Any) -> int | None:
        try:
            return run(context, **options)
        except BusbwError as error:
            if not options["brief"]:
                raise
            name = ", ".join(options["files"]) or options["hosts"] or options["hostfile"]
            return _answer_unknown(name, error.message)

    return guarded


def _answer_unknown(name: str, reason: str) -> int:
    """Print the line of a machine that was not checked; returns the exit code."""
    reason = reason.removeprefix(f"{name}: ")
    code, line = brief_without(name or platform.node(), reason, Verdict.UNKNOWN)
    answer(line)
    return code


class BriefGroup(click.Group):
    """With --brief, options that are wrong give the line and code of unknown too: the usual code
    2 would mean critical.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """The context of a command line."""
        brief = "--brief" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except (BusbwError, click.ClickException) as error:
            if not brief:
                raise
            raise click.exceptions.Exit(_answer_unknown("", error.message)) from error
