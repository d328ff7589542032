"""Types, callbacks and checks of parameters that several commands share."""

import math
import shlex
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from busbw.core.errors import UsageError
from busbw.core.rates import parse_rate
from busbw.core.sizes import duration

COUNT = click.IntRange(1, 1_000_000)
POSITIVE = click.FloatRange(0, min_open=True)
DAY_S = 86400
WORDS_OF_FORMATS = {"csv", "html", "json", "markdown", "table", "text", "yaml"}
# In the meta of click's contexts: options and values that settings are the default of.
SETTINGS_ARGV = "busbw.settings_argv"


def argv() -> list[str]:
    """The command line as the result records it, without secrets: with the options that settings
    are the default of. They stand before `--`, which a program of the user follows.
    """
    context = click.get_current_context(silent=True)
    from_settings = context.meta.get(SETTINGS_ARGV, []) if context else []
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    end = words.index("--") if "--" in words else len(words)
    from busbw.core.masking import masked_words  # compiles its expressions

    return masked_words([*words[:end], *from_settings, *words[end:]])


def is_given(parameter: str) -> bool:
    """Whether the command line has the parameter itself; what a setting gives is a default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.COMMANDLINE


def given_options(parameters: Container[str]) -> list[str]:
    """Those of the command's options, by their parameters, that the command line has itself."""
    return [
        max(parameter.opts, key=len)
        for parameter in click.get_current_context().command.params
        if parameter.name and parameter.name in parameters and is_given(parameter.name)
    ]


def shell_words(option: str, text: str) -> list[str]:
    """The words of an option that holds others, as a shell splits them; UsageError if it cannot."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text}: {str(error).lower()}", f"close the quote: {option} '-b 1M -e 1G'"
        ) from error


def not_empty(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A callback that raises UsageError for '', which is usually an unset shell variable."""
    source = context.get_parameter_source(parameter.name or "")
    if value == "" and source is not ParameterSource.DEFAULT:
        raise _empty_value(parameter)
    return value


def not_a_format(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A callback of an option that takes a file to write: UsageError for '', and for the bare name
    of a format.
    """
    refuse_format(value, parameter, context)
    return not_empty(context, parameter, value)


def refuse_format(
    value: object,
    parameter: click.Parameter | None,
    context: click.Context | None,
    expected: str = "a file",
) -> None:
    """UsageError if the value is the name of a format: `--output json` means `--format json`."""
    if parameter is None or context is None:
        return
    from busbw.report.registry import BY_NAME

    options = {name: option for option in context.command.params for name in option.opts}
    kind = options["--format"].type if "--format" in options else click.Choice(())
    offered = set(kind.choices if isinstance(kind, click.Choice) else BY_NAME)
    word = str(value)
    if word not in offered | WORDS_OF_FORMATS:
        return
    name = max(parameter.opts, key=len)
    hints = [f"--format {word}"] if word in offered else []
    if expected == "a file":
        hints.append(f"{name} ./{word} for a file of that name")
    raise UsageError(
        f"{name} {word}: the name of a format, not {expected}",
        ", or ".join(hints) or f"{context.command_path} --help",
    )


def _empty_value(parameter: click.Parameter | None) -> UsageError:
    name = max(parameter.opts, key=len) if parameter else "a path"
    return UsageError(
        f"{name} '': it is empty", "give it a value, or leave it out; is a shell variable unset?"
    )


class File(click.Path):
    """A path. An empty one, which click takes for the current directory, is a UsageError; so is the
    bare name of a format, if the file or `folder` is `written`.
    """

    def __init__(self, *, written: bool = False, folder: bool = False) -> None:
        super().__init__(file_okay=not folder, path_type=Path)
        self.written = written

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            raise _empty_value(param)
        if self.written:
            refuse_format(value, param, ctx)
        return super().convert(value, param, ctx)


class Seconds(click.ParamType[float]):
    """A time in seconds, or with its unit: `90`, `500ms`, `2m`, `1h`. From `least`, or above 0, to
    `most`; `zero` allows 0, and `whole` no fraction.
    """

    name = "time"

    def __init__(
        self, *, zero: bool = False, least: float = 0.0, most: float = DAY_S, whole: bool = False
    ) -> None:
        self.zero, self.least, self.most, self.whole = zero, least, most, whole

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds; UsageError outside the bounds."""
        text = str(value).strip()
        seconds = seconds_of(text)
        fits = max(self.least, 0) <= seconds <= self.most and (seconds > 0 or self.zero)
        if not fits or (self.whole and not seconds.is_integer()):
            name = max(param.opts, key=len) if param else "seconds"
            bounds = f"above 0, at most {self.most:.10g}"
            if self.zero or self.least:
                bounds = f"from {self.least:g} to {self.most:.10g}"
            raise UsageError(
                f"{name} {text}: must be {'whole ' if self.whole else ''}seconds {bounds}",
                f"give seconds or a time with its unit, like {name} {self._example()}",
            )
        return int(seconds) if self.whole else seconds

    def _example(self) -> str:
        return next((text for text in ("1m", "1s") if seconds_of(text) <= self.most), "1ms")


def seconds_of(text: str) -> float:
    """The seconds of `90`, `1e3`, `500ms`, `2m` or `1h`; nan for other text."""
    seconds = duration(text)
    return _number(text) if math.isnan(seconds) else seconds


class Rate(click.ParamType[float]):
    """A rate such as `450GB/s` or `400Gbit/s`, in bytes per second; errors show `example`."""

    name = "rate"

    def __init__(self, example: str) -> None:
        self.example = example

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The bytes per second; UsageError for other text."""
        if isinstance(value, float):
            return value
        return parse_rate(str(value), max(param.opts, key=len) if param else "rate", self.example)


class ShareParam(click.ParamType[float]):
    """A share of one: `5%`, or a fraction such as 0.05; above `lower` and below `upper`, or at
    most `upper` with `closed`.
    """

    name = "share"

    def __init__(self, lower: float, upper: float, *, closed: bool = False) -> None:
        self.lower, self.upper, self.closed = lower, upper, closed

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The fraction; UsageError outside the bounds, or above 1 without a percent sign."""
        text = str(value).strip()
        name = param.opts[0] if param else "share"
        number = _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not text.endswith("%") and number > 1:
            raise UsageError(
                f"{name} {text}: a fraction is at most 1", f"write {name} {text}% for percent"
            )
        if self.lower < number < self.upper or (self.closed and number == self.upper):
            return number
        lower, upper = f"above {100 * self.lower:g}%", f"{100 * self.upper:g}%"
        bounds = f"{lower} and {'at most' if self.closed else 'below'} {upper}"
        example = 0.95 if self.lower >= 0.5 or self.closed else 0.05
        hint = f"write percent or a fraction, like {name} {example:.0%} or {name} {example:g}"
        raise UsageError(f"{name} {text}: must be {bounds}", hint)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # outside all bounds
