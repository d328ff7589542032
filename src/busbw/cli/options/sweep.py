"""The options of a sweep, from the table in core.options."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click

from busbw.cli.options.parameters import refuse_format
from busbw.cli.options.sampling import CLASSIC_ONLY
from busbw.cli.options.shared import Decorator, options
from busbw.core.errors import UsageError
from busbw.core.options import BY_FIELD, CPU_FACTOR, CPU_LARGEST, OPTIONS, Option
from busbw.core.sizes import parse_size, short_size

TIMED = -1
SOAK_ROUNDS = 100  # data checks of a row: fewer rows to keep for the same data
SWEEP_OPTIONS = [row for row in OPTIONS if not row.compat_only]
MORE_HELP = {  # what applies only to `busbw run`
    "check": "; `timed` = also verify what the timed iterations wrote",
    "max_bytes": f"; on CPUs {short_size(CPU_LARGEST)} if not given",
    "step_factor": f"; on CPUs {CPU_FACTOR} if no size is given",
    "iters": "; if not given, precise timing takes as many as needed",
    **dict.fromkeys(CLASSIC_ONLY, " (classic timing)"),
}


def _size(_: click.Context, parameter: click.Parameter, value: str) -> int:
    return parse_size(value, parameter.opts[0])


def _rounds(_: click.Context, _parameter: click.Parameter, value: str) -> int:
    if value != "timed" and not value.isdecimal():
        raise UsageError(
            f"--check: '{value}' is not a number of rounds", "give 0, 1 or more, or `timed`"
        )
    return TIMED if value == "timed" else int(value)


def _op(context: click.Context, parameter: click.Parameter, value: str) -> str:
    refuse_format(value, parameter, context, "a reduction operator")
    return value


_CALLBACKS: dict[str, Callable[..., Any]] = {"size": _size, "rounds": _rounds, "op": _op}


def sweep_option(row: Option, more_help: str = "") -> Callable[[Any], Any]:
    """The click option of a row of the table of options."""
    names = [row.name(strict=True)]
    if "_" in row.long:
        names.append(f"--{row.long}")
    names.append(f"-{row.short}")
    kind = "rounds" if row.field == "check" else row.kind
    metavar = kind.upper() if kind in ("size", "rounds") else None
    if row.choices:
        metavar = f"[{'|'.join(map(str, row.choices))}]"
    allowed = f"; {row.allowed}" if row.allowed and not row.choices else ""
    default = short_size(row.default_for_run) if row.kind == "size" else row.default_for_run
    return click.option(
        *names,
        row.field,
        type=int if kind == "int" else str,
        callback=_CALLBACKS.get("op" if row.field == "op" else kind),
        default=default,
        show_default=True,
        help=row.help + MORE_HELP.get(row.field, more_help) + allowed,
        metavar=metavar,
    )


def sweep_options(defaults: Mapping[str, Any]) -> Decorator:
    """Options of the table of sweeps, with defaults of a command's own, which takes one type."""
    rows = [
        replace(row, run_default=defaults[row.field], help=row.help.removesuffix(", or all"))
        for row in map(BY_FIELD.__getitem__, defaults)
    ]
    return options(*map(sweep_option, rows))
