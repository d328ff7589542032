"""Words on the command line that several commands share."""

import math
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from busbw.core.errors import UsageError


def filled(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A callback for options that name something: UsageError where one is given and empty, as when a shell's variable is not set."""
    if value == "" and context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT:
        raise _empty(parameter)
    return value


def _empty(parameter: click.Parameter | None) -> UsageError:
    name = max(parameter.opts, key=len) if parameter else "a path"
    return UsageError(f"{name} '': it is empty", "give it a value, or leave it out; is a variable of the shell not set?")


class File(click.Path):
    """A path, and none that is empty: click takes that for the current directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The Path; UsageError where it is empty."""
        if value == "":
            raise _empty(param)
        return super().convert(value, param, ctx)


class Share(click.ParamType[float]):
    """A share of one: `5%`, or a fraction such as 0.05; above `least` and below `most`, or at most that with `closed`."""

    name = "share"

    def __init__(self, least: float, most: float, *, closed: bool = False) -> None:
        self.least, self.most, self.closed = least, most, closed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The fraction; UsageError for what is none, and for a number above 1 without its percent sign."""
        text = str(value).strip()
        name = param.opts[0] if param else "share"
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = math.nan
        if not text.endswith("%") and number > 1:
            raise UsageError(f"{name} {text}: a fraction is at most 1", f"write {name} {text}% for percent")
        if not (self.least < number < self.most or (self.closed and number == self.most)):
            usual = 0.95 if self.least >= 0.5 or self.closed else 0.05
            bounds = f"above {100 * self.least:g}% and {'at most' if self.closed else 'below'} {100 * self.most:g}%"
            raise UsageError(
                f"{name} {text}: must be {bounds}", f"write percent or a fraction, like {name} {usual:.0%} or {name} {usual:g}"
            )
        return number
