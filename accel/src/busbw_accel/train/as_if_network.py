"""A plan as if the network between the hosts were faster or slower.

Of each exchange, the part that its bytes take at the highest rate that any exchange over the same
transport has reached is scaled. The rest stays as measured: computation of the method, latency,
and what a method sends more slowly than that.
"""

import math
import re
from collections.abc import Sequence

import msgspec

from busbw.core.errors import UsageError
from busbw.core.rates import BITS_A_BYTE, parse_rate
from busbw.model.buckets import Bucket
from busbw_accel.train.plan_types import ExchangeRound, MeasuredExchange, Plan

_FACTOR = re.compile(r"(\d+(?:\.\d*)?|\.\d+)x", re.ASCII)
OPTION, EXAMPLES = "--network", "--network 2x or --network 25Gbit/s"


class AsIfNetwork(msgspec.Struct, frozen=True):
    """A network that is `factor` times as fast as the measured one, or carries `rate` bytes per
    second out of each host. One of them is set.
    """

    text: str
    factor: float = 0.0
    rate: float = 0.0

    @property
    def meaning(self) -> str:
        """For a sentence: `were 2x as fast`."""
        return f"were {self.text} as fast" if self.factor else f"carried {rate_text(self.rate)}"


def rate_text(rate: float) -> str:
    """Bytes per second in bits, with three digits: `24.4 Gbit/s`."""
    unit, scale = ("Gbit/s", 1e9) if rate * BITS_A_BYTE >= 1e9 else ("Mbit/s", 1e6)
    return f"{rate * BITS_A_BYTE / scale:.3g} {unit}"


def parse_all(text: str) -> tuple[str, ...]:
    """The networks of a comma-separated list, as `parse` takes them."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        parse(name)
    return names


def check(networks: Sequence[str], *, several_hosts: bool) -> None:
    """UsageError if another network is assumed where all ranks are on one host."""
    if networks and not several_hosts:
        raise UsageError(
            f"{OPTION} {','.join(networks)}: all ranks are on one host, and nothing leaves it",
            "give several hosts: --hosts h1:1,h2:1",
        )


def parse(text: str) -> AsIfNetwork:
    """The network of `2x`, `0.5x` or `25Gbit/s`. UsageError for other text."""
    match = _FACTOR.fullmatch(text.strip())
    if match:
        factor = float(match[1])
        if not 0 < factor < math.inf:
            raise UsageError(f"{OPTION} {text}: must be above 0", f"give one like {EXAMPLES}")
        return AsIfNetwork(f"{factor:g}x", factor)
    if re.fullmatch(r"[\d.]+", text.strip(), re.ASCII):
        raise UsageError(
            f"{OPTION} {text}: a factor needs an x, a rate its unit",
            f"write {OPTION} {text.strip()}x or {OPTION} {text.strip()}Gbit/s",
        )
    return AsIfNetwork(text.strip(), rate=parse_rate(text.strip(), OPTION, "25Gbit/s"))


def reached_rate(plan: Plan, transport: str) -> float | None:
    """The highest rate at which an exchange over this transport left a host, in bytes per second;
    None if nothing left one.
    """
    rates = [
        exchange.sent / exchange.exchange_s
        for exchange in plan.exchanges
        if exchange.transport == transport and exchange.sent and exchange.exchange_s > 0
    ]
    return max(rates, default=None)


def plan_as_if(plan: Plan, network: AsIfNetwork) -> Plan:
    """The plan with each exchange as it would be, without those whose bytes are unknown.

    Trainings that checked an exchange were on the measured network, and are left out.
    """
    exchanges = []
    for exchange in plan.exchanges:
        reached = reached_rate(plan, exchange.transport)
        if reached is not None and exchange.sent is not None:
            factor = network.factor or network.rate / reached
            if factor > 0:  # a file may have a rate that no network has
                exchanges.append(_scaled(plan, exchange, exchange.sent / reached, factor))
    return msgspec.structs.replace(plan, exchanges=exchanges)


def _scaled(
    plan: Plan, exchange: MeasuredExchange, sent_s: float, factor: float
) -> MeasuredExchange:
    """The exchange if the `sent_s` seconds that its bytes take were divided by `factor`. Gradients
    of local steps stay inside a host.
    """
    if exchange.local:
        changes = [
            msgspec.structs.replace(measured, change_s=_as_if(measured.change_s, sent_s, factor))
            for measured in exchange.rounds
        ]
        return msgspec.structs.replace(exchange, rounds=changes, checks=[], checked_s=None)
    run = next((run for run in plan.runs if run.transport == exchange.transport), None)
    layout = run.layout(exchange.bucket_mb).rounds if run else []
    rounds = [
        ExchangeRound(_faster(measured.bucket_s, steps.buckets, sent_s, factor), measured.busy_s)
        for steps, measured in zip(layout, exchange.rounds, strict=False)
    ]
    buckets = layout[0].buckets if layout else plan.buckets
    return msgspec.structs.replace(
        exchange,
        bucket_s=_faster(exchange.bucket_s, buckets, sent_s, factor),
        rounds=rounds,
        checks=[],
        checked_s=None,
    )


def _as_if(took_s: float, sent_s: float, factor: float) -> float:
    """The seconds if `sent_s` of `took_s` were divided by `factor`."""
    scaled_s = min(took_s, sent_s)
    return took_s - scaled_s + scaled_s / factor


def _faster(
    bucket_s: Sequence[float], buckets: Sequence[Bucket], sent_s: float, factor: float
) -> list[float]:
    """The seconds of each bucket; its part of `sent_s` is as large as its part of the bytes."""
    total = sum(bucket.nbytes for bucket in buckets) or 1
    return [
        _as_if(took_s, sent_s * bucket.nbytes / total, factor)
        for took_s, bucket in zip(bucket_s, buckets, strict=False)
    ]
