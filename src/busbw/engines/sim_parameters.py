"""The parameters of the simulated engine.

A module of its own, so that the command line needs no numpy.
"""

import math
from typing import NamedTuple

from busbw.core.errors import UsageError

MAX_EXACT = 2.0**53  # whole numbers up to here are exact


def value_text(value: float) -> str:
    """`1048576`, `0.01`: whole numbers with all their digits."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:g}"


class SimParameter(NamedTuple):
    """A parameter's default, range and meaning."""

    default: float
    least: float
    largest: float
    meaning: str

    @property
    def allowed(self) -> str:
        """The range as text: `from 0 to 10`, `at least 0`."""
        if self.largest == MAX_EXACT:
            return f"at least {value_text(self.least)}"
        return f"from {value_text(self.least)} to {value_text(self.largest)}"


PARAMETERS: dict[str, SimParameter] = {
    "alpha_us": SimParameter(8.0, 0, 1e9, "microseconds that every operation takes, however small"),
    "gbps": SimParameter(370.0, 1e-6, 1e9, "busbw of very large operations, in GB/s"),
    "noise": SimParameter(0.01, 0, 10, "relative standard deviation of each operation's time"),
    "seed": SimParameter(1.0, 0, MAX_EXACT, "seed of the noise"),
    "outlier": SimParameter(0.0, 0, 1, "probability that an operation takes ten times as long"),
    "dip_bytes": SimParameter(0.0, 0, MAX_EXACT, "a size that runs at half speed"),
    "ll": SimParameter(
        1.0,
        0.01,
        100,
        "how many times longer operations with protocol LL take than NCCL's model says",
    ),
    "channel_us": SimParameter(
        0.0,
        0,
        1e6,
        "microseconds that every channel of an operation costs, which NCCL's model does not know",
    ),
    "channels": SimParameter(
        16.0, 1, 32, "channels that NCCL makes unless a variable asks for more; 16 fill the links"
    ),
    "dies_algo": SimParameter(
        -1.0, -1, MAX_EXACT, "NCCL's number of an algorithm of which a rank dies: 0 Tree, 1 Ring"
    ),
    "late_rank": SimParameter(-1.0, -1, MAX_EXACT, "a rank that begins every operation late"),
    "late_us": SimParameter(200.0, 0, 1e9, "by how many microseconds"),
    "slow_rank": SimParameter(-1.0, -1, MAX_EXACT, "a rank whose links are slow"),
    "slow_gbps": SimParameter(10.0, 1e-6, 1e9, "how fast those are, in GB/s"),
    "corrupt_rank": SimParameter(
        -1.0,
        -1,
        MAX_EXACT,
        "a rank whose receive buffer gets one wrong element per operation that moves data",
    ),
    "corrupt_offset": SimParameter(0.0, 0, MAX_EXACT, "the offset of that element"),
    "data_bytes": SimParameter(
        float(1 << 20),
        0,
        MAX_EXACT,
        "the largest size whose data is moved and verified; larger operations only take time",
    ),
}


def parse_parameters(text: str) -> dict[str, float]:
    """`alpha_us=5,noise=0.1` as numbers.

    UsageError for an unknown name, no number, or one out of range.
    """
    values = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        try:
            values[name] = float(value)
        except ValueError:
            values[name] = math.nan
        if name not in PARAMETERS or math.isnan(values[name]):
            raise UsageError(
                f"--sim: '{item}' is not a parameter and its number",
                f"use {', '.join(PARAMETERS)}, like --sim noise=0.05",
            )
        parameter = PARAMETERS[name]
        if not parameter.least <= values[name] <= parameter.largest:
            raise UsageError(
                f"--sim: '{item}' is out of range",
                f"give {name} a number {parameter.allowed}: {parameter.meaning}",
            )
        if parameter.largest == MAX_EXACT and not values[name].is_integer():
            raise UsageError(
                f"--sim: '{item}' is not a whole number",
                f"give {name} a whole number {parameter.allowed}: {parameter.meaning}",
            )
    return values


def check_ranks(parameters: dict[str, float], ranks: int) -> None:
    """UsageError for a fault of a rank that is not among `ranks`; -1 is no rank."""
    for name in PARAMETERS:
        if not name.endswith("_rank"):
            continue
        rank = int(parameters.get(name, -1))
        if rank >= ranks:
            raise UsageError(
                f"--sim: '{name}={rank}': there is no such rank among {ranks}",
                f"give {name} a number from 0 to {ranks - 1}: {PARAMETERS[name].meaning}",
            )
