"""What several commands share: options, and the types, callbacks and checks of parameters."""

import math
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from busbw.core.errors import UsageError
from busbw.core.masking import masked_words
from busbw.core.networks import NETWORKS
from busbw.core.sizes import duration
from busbw.launch.slurm import Step, split
from busbw.pattern.replay.types import SCALES
from busbw.train.types import PRECISIONS

COUNT = click.IntRange(1, 1_000_000)
DAY_S = 86400


def argv() -> list[str]:
    """The command line as the result records it, without secrets."""
    return masked_words([Path(sys.argv[0]).name, *sys.argv[1:]])


def given(parameter: str) -> bool:
    """Whether the command line of the current command contains the parameter."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is not ParameterSource.DEFAULT


def shell_words(option: str, text: str) -> list[str]:
    """The words of an option that holds others, as a shell splits them; UsageError for an open
    quote.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text}: {str(error).lower()}", f"close the quote: {option} '-b 1M -e 1G'"
        ) from error


def not_empty(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A callback that raises UsageError for an option given as '', which is usually an unset
    shell variable.
    """
    source = context.get_parameter_source(parameter.name or "")
    if value == "" and source is not ParameterSource.DEFAULT:
        raise _empty_value(parameter)
    return value


def _empty_value(parameter: click.Parameter | None) -> UsageError:
    name = max(parameter.opts, key=len) if parameter else "a path"
    return UsageError(
        f"{name} '': it is empty", "give it a value, or leave it out; is a shell variable unset?"
    )


class File(click.Path):
    """A path. An empty one, which click takes for the current directory, is a UsageError."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The Path."""
        if value == "":
            raise _empty_value(param)
        return super().convert(value, param, ctx)


class Seconds(click.ParamType[float]):
    """Seconds, at most a day; `zero` allows 0."""

    name = "seconds"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds; UsageError outside the bounds."""
        name = param.opts[0] if param else "seconds"
        seconds = _number(str(value))
        if not (0 < seconds <= DAY_S or (self.zero and seconds == 0)):
            bounds = f"from 0 to {DAY_S}" if self.zero else f"above 0, at most {DAY_S}"
            raise UsageError(
                f"{name} {value}: must be seconds {bounds}", f"give seconds, like {name} 60"
            )
        return seconds


class Span(click.ParamType[float]):
    """A time of at most a day: `10s`, `500ms`, or seconds."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds; UsageError outside the bounds."""
        name = max(param.opts, key=len) if param else "time"
        seconds = duration(str(value).strip(), bare=1.0)
        if not 0 < seconds <= DAY_S:
            raise UsageError(
                f"{name} {value}: must be a time above 0, at most {DAY_S}s",
                f"give seconds, like {name} 10s",
            )
        return seconds


class Share(click.ParamType[float]):
    """A share of one: `5%`, or a fraction such as 0.05; above `lower` and below `upper`, or at
    most `upper` with `closed`.
    """

    name = "share"

    def __init__(self, lower: float, upper: float, *, closed: bool = False) -> None:
        self.lower, self.upper, self.closed = lower, upper, closed

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The fraction; UsageError outside the bounds, and for a number above 1 without its
        percent sign.
        """
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


Decorator = Callable[[Any], Any]


def options(*decorators: Decorator) -> Decorator:
    """One decorator that adds several options in this order."""

    def decorate(command: Any) -> Any:
        for add in reversed(decorators):
            command = add(command)
        return command

    return decorate


start_options = options(
    click.option(
        "-n",
        "--ranks",
        type=click.IntRange(1),
        help="number of ranks  [default: all GPUs, or 2 on CPUs]",
    ),
    click.option(
        "--hosts", default="", callback=not_empty, help="hosts and ranks on each: h1:8,h2:8"
    ),
    click.option("--hostfile", type=File(), help="file with one host per line: `h1 slots=8`"),
    click.option(
        "--ifname",
        default="",
        callback=not_empty,
        help="network interface for MPI, PMIx, Gloo and NCCL",
    ),
    click.option(
        "--launch-limit",
        "launch_limit_s",
        type=Seconds(),
        default=120.0,
        show_default=True,
        help="seconds until all ranks must have joined",
    ),
    click.option(
        "--slurm",
        is_flag=True,
        help="start the ranks with srun, in the current allocation or a new one",
    ),
    click.option(
        "--nodes", type=click.IntRange(1), help="with --slurm: nodes  [default: the allocation's]"
    ),
    click.option(
        "--ntasks-per-node",
        type=click.IntRange(1),
        help="with --slurm: ranks on each node  [default: one per GPU]",
    ),
    click.option(
        "--gpus-per-node", type=click.IntRange(1), help="with --slurm: GPUs to request on each node"
    ),
    click.option(
        "--slurm-args",
        default="",
        help="with --slurm: other arguments for srun, like '-p gpu -A team -t 10 --exclusive'",
    ),
)
training_options = options(
    click.option(
        "--batch-size", type=COUNT, default=32, show_default=True, help="samples per rank and step"
    ),
    click.option(
        "--sequence",
        type=COUNT,
        default=1024,
        show_default=True,
        help="tokens per sample of a language model",
    ),
    click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default="fp32",
        show_default=True,
        help="bf16, fp16: autocast; tf32: fp32 on TF32",
    ),
    click.option(
        "--bucket-mb",
        type=click.FloatRange(0, min_open=True),
        default=25.0,
        show_default=True,
        help="DDP's bucket_cap_mb",
    ),
    click.option(
        "--limit",
        "limit_s",
        type=Seconds(zero=True),
        default=300.0,
        show_default=True,
        help="seconds for one iteration; 0 = no limit",
    ),
)
_networks = "; ".join(f"{row.name} = {row.meaning}" for row in NETWORKS)
net_option = click.option(
    "--net",
    type=click.Choice([row.name for row in NETWORKS]),
    show_default="NCCL's choice",
    help=f"network that NCCL must use: {_networks}",
)
result_options = options(
    click.option(
        "--json",
        "json_name",
        default="",
        callback=not_empty,
        help="write the result to this file, updated after every row; - = stdout at the end",
    ),
    click.option("--force", is_flag=True, help="let --json replace an existing file"),
)
format_option = click.option(
    "--format",
    "format_name",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="output on stdout",
)
scale_option = click.option(
    "--scale",
    type=click.Choice(SCALES),
    default="none",
    show_default=True,
    help="rule for a pattern on another number of ranks: keep the bytes of algbw, or NCCL's count",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="print the launcher's command line and stop"
)


def result_file(json_name: str) -> Path | None:
    """The file that --json names; None for stdout and without --json."""
    return Path(json_name) if json_name not in ("", "-") else None


def take_where(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the options that say where ranks start from a command's `fields`; returns them as
    arguments of `Where`.

    UsageError for options of Slurm without --slurm, and for hosts with it.
    """
    taken = {name: fields.pop(name) for name in ("ranks", "hosts", "hostfile", "ifname")}
    slurm, arguments = fields.pop("slurm"), fields.pop("slurm_args")
    numbers: dict[str, int | None] = {
        name: fields.pop(name) for name in ("nodes", "ntasks_per_node", "gpus_per_node")
    }
    if not slurm:
        for name, value in {**numbers, "slurm_args": arguments}.items():
            if value:
                raise UsageError(
                    f"--{name.replace('_', '-')} is for jobs that srun starts", "add --slurm"
                )
        return taken
    if taken["hosts"] or taken["hostfile"]:
        raise UsageError(
            "--slurm and --hosts both start the ranks",
            "leave out --hosts and --hostfile: Slurm chooses the nodes",
        )
    step = Step(
        taken["ranks"],
        numbers["nodes"],
        numbers["ntasks_per_node"],
        numbers["gpus_per_node"],
        split(arguments),
    )
    return taken | {"step": step}
