"""The expected time of one operation on a described system, and fits to measurements.

Which algorithm and protocol run is NCCL's decision, by the constants of the release that runs. How
long they take is a question of hardware, so the time comes from the latest constants. From 1 GiB on
these are within 1.9 % on 2 x 8 H100 with NCCL 2.21.5, whose own are 7 to 11 % too fast.

`fit` adapts NCCL's model to measurements: each algorithm and protocol of a collective gets a factor
a of its latency and a factor b of its transfer time. The time is t = a L + b B, where L and B are
the two parts of the model's time. a and b minimize the sum of squared relative errors,
((a L + b B) / t - 1)^2, and are not negative. Because L and B keep how they depend on the hosts,
the factors hold for other host counts as far as the model's form does; the largest job is therefore
predicted from the smaller ones first, and that error is reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from busbw.core.alltoallv import Traffic
from busbw.core.collectives import BY_NAME, Collective
from busbw.model.bounds import P2P, bounds
from busbw.model.fabric import Fabric
from busbw.model.nccl import p2p
from busbw.model.nccl.choice import US, Allowed, Choice, Parts, choices, parts
from busbw.model.nccl.constants import LATEST, Release
from busbw.model.nccl.nvls_types import allowed_for
from busbw.model.systems import System
from busbw.model.types import Fit

Fits = dict[tuple[str, str, str], Fit]  # by collective, algorithm and protocol
MIN_TIME_SHARE = 0.1  # of a time: a smaller part says nothing about its factor


@dataclass(frozen=True, slots=True)
class Setting:
    """What an estimate depends on besides the operation.

    `oversubscription` divides the rate of the NICs; NCCL does not know of it. `traffic` gives what
    an alltoallv of so many hosts and bytes moves between the ranks, which are numbered host by
    host; None for an even exchange. `dtype` and `op` are names of their tables. `comm` are
    the hosts of the communicator of a send and its ranks on each; None for a measured sendrecv.
    """

    system: System
    release: Release = LATEST
    may: Allowed = field(default_factory=Allowed)
    oversubscription: float = 1.0
    traffic: Callable[[int, int], Traffic | None] | None = None
    dtype: str = "float"
    op: str = "sum"
    comm: tuple[int, int] | None = None

    def allowed(self, collective: str) -> Allowed:
        """What NCCL may use for the collective with this element type."""
        return allowed_for(self.may, collective, self.dtype, self.op)

    def traffic_at(self, hosts: int, size_bytes: int) -> Traffic | None:
        """What an alltoallv moves between the ranks; None for an even exchange."""
        return self.traffic(hosts, size_bytes) if self.traffic else None


def estimate(
    setting: Setting, collective: str, hosts: int, per_host: int, size_bytes: int
) -> Choice | None:
    """The algorithm, the protocol and the time; None where no algorithm can run, as with one rank.

    A collective that NCCL builds of sends and receives has its point-to-point bound as its rate,
    which the channels of a send between hosts may limit, and the latency of its messages.
    """
    if hosts * per_host < 2:
        return None
    row = BY_NAME[collective]
    model = setting.system.model(setting.release, hosts, per_host)
    possible = choices(model, collective, size_bytes, setting.allowed(collective))
    if not possible:
        return _exchange(setting, row, hosts, per_host, size_bytes)
    chosen = possible[0]
    model = setting.system.model(LATEST, hosts, per_host)
    latest = parts(model, collective, size_bytes, chosen.algorithm, chosen.protocol)
    timed = latest or chosen.parts
    if setting.oversubscription > 1 and hosts > 1:
        timed = _slow_down(setting, row, hosts, per_host, size_bytes, replace(chosen, parts=timed))
    return replace(chosen, parts=timed)


def calibrate(choice: Choice, fit: Fit | None) -> Choice:
    """The estimate with the factors of a fit, if there is one."""
    if fit is None:
        return choice
    latency_s, transfer_s = choice.parts.latency_s, choice.parts.transfer_s
    return replace(choice, parts=Parts(latency_s * fit.latency, transfer_s * fit.transfer))


def _slow_down(
    setting: Setting, row: Collective, hosts: int, per_host: int, size_bytes: int, choice: Choice
) -> Parts:
    """The time with a transfer no faster than the algorithm's bound over the part of the NICs
    that the network lets through.
    """
    limits = [
        bound.busbw
        for bound in bounds(row, _narrow(setting, hosts, per_host), setting.system.features())
        if bound.algorithm == choice.algorithm
    ]
    least_s = size_bytes * float(row.bus_factor(hosts * per_host)) / limits[0] if limits else 0.0
    return Parts(choice.parts.latency_s, max(choice.parts.transfer_s, least_s))


def _narrow(setting: Setting, hosts: int, per_host: int) -> Fabric:
    """The links at what they carry of data, the NICs divided by the oversubscription."""
    fabric = setting.system.fabric(hosts, per_host, payload=True)
    oversubscription = setting.oversubscription
    return replace(fabric, nics=fabric.nics / oversubscription, rail=fabric.rail / oversubscription)


def _exchange(
    setting: Setting, row: Collective, hosts: int, per_host: int, size_bytes: int
) -> Choice | None:
    traffic = setting.traffic_at(hosts, size_bytes)
    narrowed = replace(_narrow(setting, hosts, per_host), traffic=traffic)
    bound = next(iter(bounds(row, narrowed, setting.system.features())), None)
    if bound is None or bound.busbw <= 0:
        return None
    rate = bound.busbw
    if row.name == p2p.PAIRS and hosts > 1:
        rate = min(rate, channels_of_send(setting, hosts, per_host) * p2p.CHANNEL_RATE)
    model = setting.system.model(setting.release, hosts, per_host)
    latency_s = p2p.latency_us(model, row.name) * US
    factor = float(row.bus_factor(hosts * per_host))
    return Choice(P2P, "Simple", Parts(latency_s, size_bytes * factor / rate))


def channels_of_send(setting: Setting, hosts: int, per_host: int) -> int:
    """Channels of a send between hosts, as the release that runs decides."""
    release, peers = setting.release, p2p.peers_of_sendrecv(setting.release, hosts * per_host)
    if setting.comm is not None:
        hosts, per_host = setting.comm
        peers = hosts * per_host
    model = setting.system.model(release, hosts, per_host)
    return p2p.channels_of_send(model, setting.system.planned_rail(per_host), peers)


@dataclass(frozen=True, slots=True)
class Point:
    """One measured time, and the parts that the model expects of it."""

    collective: str
    algorithm: str
    protocol: str
    hosts: int
    size_bytes: int
    parts: Parts
    time_s: float


def fit(points: Sequence[Point]) -> Fits:
    """The factors of every collective, algorithm and protocol that some point has."""

    def key(point: Point) -> tuple[str, str, str]:
        return point.collective, point.algorithm, point.protocol

    usable = sorted((point for point in points if point.time_s > 0), key=key)
    return {name: _fit(*name, list(same)) for name, same in groupby(usable, key)}


def _fit(collective: str, algorithm: str, protocol: str, points: list[Point]) -> Fit:
    hosts = max(point.hosts for point in points)
    latency, transfer = factors(points)
    smaller = [point for point in points if point.hosts < hosts]
    largest = [point for point in points if point.hosts == hosts]
    return Fit(
        collective,
        algorithm,
        protocol,
        latency,
        transfer,
        len(points),
        hosts,
        worst(points, latency, transfer),
        min(point.size_bytes for point in points),
        hosts if smaller else None,
        worst(largest, *factors(smaller)) if smaller else None,
    )


def factors(points: Sequence[Point]) -> tuple[float, float]:
    """The factors a of the latency and b of the transfer time, not negative.

    One point, and points that cannot tell the two parts apart, give one factor for both. A part
    that is below MIN_TIME_SHARE at every point has factor 1.
    """
    latencies = [point.parts.latency_s / point.time_s for point in points]
    transfers = [point.parts.transfer_s / point.time_s for point in points]
    ll = sum(latency * latency for latency in latencies)
    bb = sum(transfer * transfer for transfer in transfers)
    lb = sum(latency * transfer for latency, transfer in zip(latencies, transfers, strict=True))
    sum_l, sum_b = sum(latencies), sum(transfers)
    if max(latencies) < MIN_TIME_SHARE:
        return 1.0, (sum_b - lb) / bb
    if max(transfers) < MIN_TIME_SHARE:
        return (sum_l - lb) / ll, 1.0
    determinant = ll * bb - lb * lb
    if len(points) > 1 and determinant > 1e-9 * ll * bb:
        a = (sum_l * bb - sum_b * lb) / determinant
        b = (sum_b * ll - sum_l * lb) / determinant
        if a < 0:
            return 0.0, sum_b / bb
        return (a, b) if b >= 0 else (sum_l / ll, 0.0)
    both = (sum_l + sum_b) / (ll + bb + 2 * lb)
    return both, both


def worst(points: Sequence[Point], latency: float, transfer: float) -> float:
    """The largest relative error with these factors."""
    errors = []
    for point in points:
        expected_s = latency * point.parts.latency_s + transfer * point.parts.transfer_s
        errors.append(abs(expected_s / point.time_s - 1))
    return max(errors)
