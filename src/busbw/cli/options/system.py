"""Options that describe a system, shared by `busbw predict` and `busbw explain`."""

from typing import Any

import click

from busbw.api.systems import AUTO, MAX_UPLINKS
from busbw.cli.options.parameters import not_empty
from busbw.cli.options.shared import Decorator, options
from busbw.core.errors import UsageError
from busbw.model.nccl.constants import FITTED
from busbw.model.systems import CPUS, MAX_HOSTS


def system_options(default: str) -> Decorator:
    """The options of a system; `default` names what is taken without them."""
    system_help = (
        "GPU and how many a host has, or a cloud's host: h100x8, gb200nvl72, p5.48xlarge "
        f" [default: {default}]"
    )
    return options(
        click.option("--system", default="", callback=not_empty, help=system_help),
        click.option(
            "--topo",
            default="",
            callback=not_empty,
            help="a host's topology as NCCL_TOPO_DUMP_FILE writes it",
        ),
        click.option(
            "--nics",
            default="",
            callback=not_empty,
            help="ports of a host and the rate of each: 8x400G",
        ),
        click.option(
            "--fabric",
            default="",
            callback=not_empty,
            help="network of the hosts, or the latency that its plugin reports: efav2, 75us",
        ),
        click.option(
            "--cpu", type=click.Choice(CPUS), help="the hosts' CPU, which NCCL's model depends on"
        ),
    )


recorded_nodes_option = click.option(
    "--nodes",
    type=click.IntRange(1, MAX_HOSTS),
    help="number of hosts, where the file does not say",
)
nccl_option = click.option(
    "--nccl",
    default=FITTED,
    callback=not_empty,
    show_default=True,
    help="release of NCCL whose choice is predicted: 2.27, or latest",
)
settings_options = options(
    click.option(
        "--algo", default="", callback=not_empty, help="as NCCL_ALGO: Ring, or ^NVLS,NVLSTree"
    ),
    click.option("--proto", default="", callback=not_empty, help="as NCCL_PROTO"),
)


class HostCounts(click.ParamType[tuple[int, ...]]):
    """Numbers of hosts: `1,2,128`, in ascending order without repeats."""

    name = "counts"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers; UsageError for other text."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        is_number = all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts)
        numbers = [int(part) for part in parts] if is_number else [0]
        if not all(1 <= number <= MAX_HOSTS for number in numbers):
            raise UsageError(
                f"--nodes: '{value}' are not numbers of hosts",
                f"give 1 to {MAX_HOSTS}, like --nodes 2 or --nodes 1,2,128",
            )
        return tuple(sorted(set(numbers)))


class Uplinks(click.ParamType[int]):
    """Uplinks of a leaf switch: a number, or `auto`, which is 0."""

    name = "uplinks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; UsageError for other text."""
        text = str(value)
        if text == AUTO:
            return 0
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
        if not 1 <= number <= MAX_UPLINKS:
            raise UsageError(
                f"--ecmp '{text}': not a number of uplinks",
                f"give 1 to {MAX_UPLINKS}, or {AUTO} for as many as the oversubscription leaves",
            )
        return number
