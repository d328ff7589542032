"""Runs of the history as arguments in place of files: `-1` is the last one, `-2` the one before,
`run:12` the one with id 12.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from busbw.history.store import History

FROM_LAST = re.compile(r"-([1-9]\d{0,8})")
NAME = re.compile(r"run:(-?\d{1,18})")


class TakesRuns(click.Command):
    """A command whose arguments may be runs of the history: of its --db, if it has one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, but -1 is a run and no option."""
        return super().parse_args(ctx, self._named(args))

    def invoke(self, ctx: click.Context) -> Any:
        """As click does, with the id of each run in its name."""
        for parameter in self.params:
            if isinstance(parameter, click.Argument) and parameter.name is not None:
                value = ctx.params[parameter.name]
                if isinstance(value, str):
                    ctx.params[parameter.name] = with_id(value)
                elif isinstance(value, tuple):
                    ctx.params[parameter.name] = tuple(map(with_id, value))
        return super().invoke(ctx)

    def _named(self, args: Sequence[str]) -> list[str]:
        """-1 as run:-1, unless it is the value of an option, or comes after `--`."""
        valued = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and not parameter.is_flag
            for name in parameter.opts
        }
        end = list(args).index("--") if "--" in args else len(args)
        named = []
        for number, arg in enumerate(args):
            of_option = number > 0 and args[number - 1] in valued
            is_run = number < end and not of_option and FROM_LAST.fullmatch(arg)
            named.append(f"run:{arg}" if is_run else arg)
        return named


def with_id(file: str) -> str:
    """`run:12` for `run:-1`, if that is the last run; other names as they are."""
    match = NAME.fullmatch(file)
    if match is None or int(match[1]) >= 0:
        return file
    with _history() as history:
        return f"run:{history.last(-int(match[1]))}"


def content(name: str) -> bytes:
    """The stored result as JSON; UsageError if there is no such run."""
    with _history() as history:
        return history.text(int(name.removeprefix("run:"))).encode()


@contextmanager
def _history() -> Iterator["History"]:
    # SQLite takes 10 ms to import
    from busbw.cli.config.history import history_environment
    from busbw.history.place import history_file
    from busbw.history.store import opened

    context = click.get_current_context(silent=True)
    db = context.params.get("db") if context else None
    with opened(db or history_file(history_environment()), create=False) as history:
        yield history
