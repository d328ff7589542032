"""The time of a simulated operation with one algorithm, protocol and number of channels.

It is relative to NCCL's choice by its model of one host (model/nccl). Some parameters are what the
model does not know: `ll` makes protocol LL slower, as a network does that must carry twice the
bytes; `channel_us` makes every channel cost time; and fewer than 16 `channels` do not fill the
links.
"""

import os
from collections.abc import Mapping
from functools import cached_property

from busbw.core import tuner_table
from busbw.core.env import TUNER
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.given_file import read_text
from busbw.core.networks import CHANNEL_VARIABLES
from busbw.core.tuning import TUNED, TuningChoice
from busbw.model.nccl.choice import Model, allowed, choices, parts
from busbw.model.nccl.constants import LL, fitted_release
from busbw.model.nccl.graphs import CHANNELS, ChannelGraph

US = 1e-6
SM = 90
LEAST_VARIABLE, LIMIT_VARIABLE, *_ = CHANNEL_VARIABLES
MAX_CHANNELS = 32
NODES = 1


class SimTuner:
    """The tuner of `ranks` ranks with the parameters `p` of the sim engine.

    The environment is read once, as NCCL does for a communicator.
    """

    def __init__(
        self, ranks: int, p: Mapping[str, float], environment: Mapping[str, str] = os.environ
    ) -> None:
        self._ranks, self._p, self._environment = ranks, p, dict(environment)
        self._steered: tuple[str, int, TuningChoice | None] = ("", 0, None)
        self._asked = False
        self._factors: dict[tuple[str, int, TuningChoice | None], float] = {}
        name = self._environment.get(TUNER.table, "")
        self._table = _read(name) if name else tuner_table.TunerTable()

    @cached_property
    def _model(self) -> Model:
        graph = ChannelGraph(CHANNELS, self._p["gbps"] / CHANNELS, self._p["gbps"] / CHANNELS)
        return Model(
            fitted_release(), NODES, self._ranks, SM, over_nvlink=True, ring=graph, tree=graph
        )

    def steer(self, collective: str, size_bytes: int, choice: TuningChoice | None) -> None:
        self._steered, self._asked = (collective, size_bytes, choice), False

    def costs(self) -> dict[TuningChoice, float]:
        collective, size_bytes, _ = self._steered
        return self._costs(collective, size_bytes) if self._asked else {}

    def nodes(self) -> int:
        return NODES if self._asked else 0

    def factor(self, collective: str, size_bytes: int) -> float:
        """How many times longer than NCCL's choice without `ll` the operation takes.

        NoMeasurement if a rank dies of it.
        """
        if collective not in TUNED or self._ranks < 2:
            return 1.0
        steered = self._steered[:2] == (collective, size_bytes)
        self._asked = self._asked or steered
        choice = self._steered[2] if steered else None
        choice = choice or self._table.choice(self._ranks, NODES, collective, size_bytes)
        key = collective, size_bytes, choice
        if key not in self._factors:
            self._factors[key] = self._factor(*key)
        return self._factors[key]

    def _factor(self, collective: str, size_bytes: int, choice: TuningChoice | None) -> float:
        costs = self._costs(collective, size_bytes)
        if not costs:
            names = ("NCCL_ALGO", "NCCL_PROTO")
            variables = " ".join(f"{name}={self._environment.get(name, '')}" for name in names)
            raise NoMeasurement(
                f"NCCL has no algorithm for {collective} with {variables}", "unset these variables"
            )
        if choice is None or TuningChoice(choice.algorithm, choice.protocol) not in costs:
            choice = min(costs, key=costs.__getitem__)
        if choice.numbers[0] == self._p["dies_algo"]:
            raise NoMeasurement(
                f"rank 1 ended in {collective} with {choice} (--sim dies_algo)",
                "leave out dies_algo",
            )
        fastest = min(
            choices(self._model, collective, size_bytes), key=lambda cost: cost.parts.time_s
        )
        default = TuningChoice(fastest.algorithm, fastest.protocol)
        default_s = self._seconds(collective, size_bytes, default, 1.0, {})
        chosen_s = self._seconds(collective, size_bytes, choice, self._p["ll"], self._environment)
        return chosen_s / default_s

    def _costs(self, collective: str, size_bytes: int) -> dict[TuningChoice, float]:
        if collective not in TUNED or self._ranks < 2:
            return {}
        by_variables = allowed(self._environment, collective)
        costs = choices(self._model, collective, size_bytes, by_variables)
        return {TuningChoice(cost.algorithm, cost.protocol): cost.parts.time_s for cost in costs}

    def _seconds(
        self,
        collective: str,
        size_bytes: int,
        choice: TuningChoice,
        ll: float,
        environment: Mapping[str, str],
    ) -> float:
        least = max(int(self._p["channels"]), _number(environment, LEAST_VARIABLE))
        available = min(least, _number(environment, LIMIT_VARIABLE) or MAX_CHANNELS)
        channels = min(choice.channels or available, available)
        cost = parts(self._model, collective, size_bytes, choice.algorithm, choice.protocol)
        assert cost is not None  # it is among the costs
        transfer_s = cost.transfer_s * CHANNELS / min(channels, CHANNELS)
        slowdown = ll if choice.protocol == LL else 1.0
        return (cost.latency_s + transfer_s) * slowdown + channels * self._p["channel_us"] * US


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def _read(name: str) -> tuner_table.TunerTable:
    try:
        text = read_text(name)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{TUNER.table}={name}: {reason}",
            f"name a table that busbw tune wrote, or unset {TUNER.table}",
        ) from error
    return tuner_table.parse(text, name)
