"""Injected faults, to see how busbw reports them: `late:rank=2,us=200`."""

from typing import NamedTuple

from busbw.core.errors import NoMeasurement, UsageError
from busbw.engines.base import Engine

HINT = "write it like --inject late:rank=2,us=200"


class LateRank(NamedTuple):
    """A rank that starts every operation late."""

    rank: int
    us: float


def parse(text: str) -> LateRank | None:
    """The fault that the text describes; None for ''. UsageError if it is invalid."""
    if not text:
        return None
    kind, _, settings = text.partition(":")
    values = dict(setting.partition("=")[::2] for setting in settings.split(","))
    try:
        if kind != "late" or set(values) != {"rank", "us"}:
            raise ValueError
        late = LateRank(int(values["rank"]), float(values["us"]))
    except ValueError:
        raise UsageError(f"--inject '{text}': not a fault that busbw can inject", HINT) from None
    if late.rank < 0 or not 0 <= late.us <= 1e6:
        raise UsageError(f"--inject '{text}': rank must be 0 or more, us from 0 to 1000000", HINT)
    return late


def delay_s(late: LateRank | None, engine: Engine, rank: int, ranks: int) -> float:
    """Seconds by which this process, `rank` of `ranks`, must start late.

    UsageError for a missing rank and for the sim engine, NoMeasurement for operations queued on a
    GPU, which the host cannot delay.
    """
    if late is None:
        return 0.0
    if engine.name == "sim":  # its ranks share a process and a simulated clock
        fault = f"late:rank={late.rank},us={late.us:g}"
        raise UsageError(
            f"--inject {fault}: the sim engine takes faults from --sim",
            f"--sim late_rank={late.rank},late_us={late.us:g}",
        )
    if late.rank >= ranks:
        raise UsageError(
            f"--inject late:rank={late.rank}: there is no such rank among {ranks}",
            f"use a rank from 0 to {ranks - 1}",
        )
    if engine.asynchronous:
        message = (
            f"--inject: the {engine.name} engine starts operations on the GPU, where they cannot be"
            " delayed"
        )
        raise NoMeasurement(message, "use --engine mpi, or --engine sim --sim late_rank=2")
    return late.us * 1e-6 if late.rank == rank else 0.0
