"""The expected time of one operation on a described system.

Which algorithm and protocol run is NCCL's decision, by the constants of the release that runs. How
long they take is a question of hardware, so the time comes from the latest constants. From 1 GiB on
these are within 1.9 % on 2 x 8 H100 with NCCL 2.21.5, whose own are 7 to 11 % too fast.
"""

from dataclasses import dataclass, field, replace

from busbw.core.collectives import BY_NAME, Collective
from busbw.model.bounds import P2P, bounds
from busbw.model.nccl.choice import Allowed, Choice, choices
from busbw.model.nccl.constants import LATEST, NET, NVLINK, PCI, RING, Release
from busbw.model.nccl.timing import US, Parts, parts
from busbw.model.systems import System
from busbw.model.types import Fit

Fits = dict[tuple[str, str, str], Fit]  # by collective, algorithm and protocol
SIMPLE_AT = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """What an estimate depends on besides the operation.

    Oversubscription divides what leaves a host, which NCCL does not know of.
    """

    system: System
    release: Release = LATEST
    may: Allowed = field(default_factory=Allowed)
    oversubscription: float = 1.0


def estimate(
    setting: Setting, collective: str, hosts: int, per_host: int, size_bytes: int
) -> Choice | None:
    """The algorithm, the protocol and the time; None where no algorithm can run, as with one rank.

    What NCCL builds of sends and receives has its point-to-point bound as its rate and one hop as
    its latency.
    """
    if hosts * per_host < 2:
        return None
    row = BY_NAME[collective]
    found = choices(
        setting.system.model(setting.release, hosts, per_host), collective, size_bytes, setting.may
    )
    if not found:
        return _exchange(setting, row, hosts, per_host, size_bytes)
    chosen = found[0]
    latest = parts(
        setting.system.model(LATEST, hosts, per_host),
        collective,
        size_bytes,
        chosen.algorithm,
        chosen.protocol,
    )
    timed = latest or chosen.parts
    if setting.oversubscription > 1 and hosts > 1:
        timed = _slowed(setting, row, hosts, per_host, size_bytes, replace(chosen, parts=timed))
    return replace(chosen, parts=timed)


def calibrated(choice: Choice, fit: Fit | None) -> Choice:
    """The estimate with the factors of a fit, if there is one."""
    if fit is None:
        return choice
    return replace(
        choice,
        parts=Parts(choice.parts.latency_s * fit.latency, choice.parts.transfer_s * fit.transfer),
    )


def _slowed(
    setting: Setting, row: Collective, hosts: int, per_host: int, size_bytes: int, choice: Choice
) -> Parts:
    """The time with the bytes no faster than the algorithm's bound over the part of the NICs
    that the network lets through.
    """
    whole = setting.system.fabric(hosts, per_host, payload=True)
    left = replace(
        whole,
        nics=whole.nics / setting.oversubscription,
        rail=whole.rail / setting.oversubscription,
    )
    limits = [
        bound.busbw
        for bound in bounds(row, left, setting.system.features())
        if bound.algorithm == choice.algorithm
    ]
    least = size_bytes * float(row.bus_factor(hosts * per_host)) / limits[0] if limits else 0.0
    return Parts(choice.parts.latency_s, max(choice.parts.transfer_s, least))


def _exchange(
    setting: Setting, row: Collective, hosts: int, per_host: int, size_bytes: int
) -> Choice | None:
    whole = setting.system.fabric(hosts, per_host, payload=True)
    left = replace(
        whole,
        nics=whole.nics / setting.oversubscription,
        rail=whole.rail / setting.oversubscription,
    )
    bound = next(iter(bounds(row, left, setting.system.features())), None)
    if bound is None or bound.busbw <= 0:
        return None
    link = NET if hosts > 1 else NVLINK if setting.system.over_nvlink else PCI
    latency = LATEST.base[RING][SIMPLE_AT] + LATEST.hops[link][RING][SIMPLE_AT]
    factor = float(row.bus_factor(hosts * per_host))
    return Choice(P2P, "Simple", Parts(latency * US, size_bytes * factor / bound.busbw))
