"""Predicts the time of one size with its range, and the size from which on bandwidth, not latency,
limits it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, inf, log
from statistics import fmean

from msgspec import structs

from busbw.core.collectives import BY_NAME, Collective
from busbw.model.bounds import bounds
from busbw.model.estimate import EstimateInputs, by_links, channels_left, estimate
from busbw.model.fabric import rails_of
from busbw.model.hardware import gpu_word
from busbw.model.nccl.choice import ALL_ALLOWED, ExpectedChoice
from busbw.model.nccl.constants import NVLS, RING
from busbw.model.reference.bands import band, bands, is_extrapolated, widened
from busbw.model.reference.curves import Reference, ReferenceCurve, built_in
from busbw.model.reference.expected import (
    ExpectedBasis,
    ExpectedTime,
    GpuLinks,
    Scope,
    expect,
    modelled_s,
    scope_of,
)
from busbw.model.reference.similar import ReferenceJob
from busbw.model.spine import Spine
from busbw.model.types import Crossing, Forecast

MAX_SIZE_BYTES = 1 << 42
SMALLEST_BYTES = 1 << 10  # its time is taken as the latency
# How far busbw may be off with a calibration of as many hosts, from these sizes on: two runs of
# one system differ by less at large sizes.
CALIBRATED = ((1 << 30, 0.05), ((64 << 20) + 1, 0.10), (1 << 20, 0.20), (0, 0.30))
NO_RUNS = Reference((), {})
ALLTOALL = "alltoall"
CARRIES = 8  # times as many hosts: beyond, less and less of a calibration applies


@dataclass(frozen=True)
class MeasuredCurves:
    """Measured curves that a forecast may use: `known` are reference curves, `calibration` are runs
    of the described system itself.
    """

    known: Reference
    calibration: tuple[ReferenceCurve, ...] = ()


@cache
def published() -> MeasuredCurves:
    """The reference curves that come with busbw."""
    return MeasuredCurves(built_in())


def forecast(
    setting: EstimateInputs,
    row: Collective,
    hosts: int,
    per_host: int,
    size_bytes: int,
    evidence: MeasuredCurves | None = None,
) -> Forecast | None:
    """The expected time of one size; None where nothing can run."""
    evidence = evidence or published()
    traffic = setting.traffic_at(hosts, size_bytes)
    if hosts == 1 and traffic is not None:
        # 1 with an even matrix
        busiest = traffic.rank_bytes / traffic.size_bytes / float(row.bus_factor(per_host))
        return _as_even(setting, busiest, per_host, size_bytes, evidence)
    setting = unlimited(setting, row.name, hosts, per_host, size_bytes)
    shape = hosts, per_host
    chosen = by_links(setting, row.name, hosts, per_host, size_bytes)
    if chosen is None:
        return None
    expected = _expected(setting, row.name, shape, size_bytes, chosen, evidence)
    moved = size_bytes * float(row.bus_factor(hosts * per_host))
    limits = _limits(setting, row, hosts, per_host, size_bytes)
    if expected.basis is not ExpectedBasis.CALIBRATION and chosen.algorithm in limits:
        least_s = moved / limits[chosen.algorithm]
        expected = replace(expected, time_s=max(expected.time_s, least_s))
    smallest = min(size_bytes, SMALLEST_BYTES)
    latency_s = expected.time_s
    if smallest < size_bytes:
        latency_s = _latency(setting, row.name, shape, smallest, evidence) or latency_s
        if expected.basis is ExpectedBasis.CALIBRATION:
            latency_s *= _calibrated_share(setting, row.name, shape, smallest, evidence)
    busbw = moved / expected.time_s
    low, high = _range(expected, size_bytes, hosts * per_host)
    if chosen.algorithm == NVLS and hosts > 1 and expected.basis is ExpectedBasis.MODEL:
        low **= 2  # no band is made from runs in which switches between hosts reduce
    low *= _left_by_collisions(setting, row.name, shape, size_bytes)
    at_most = max(limits.values(), default=inf)
    return Forecast(
        hosts,
        hosts * per_host,
        size_bytes,
        chosen.algorithm,
        chosen.protocol,
        expected.time_s,
        latency_s,
        busbw,
        busbw * low,
        max(busbw, min(busbw * high, at_most)),
        bands().coverage,
        expected.basis,
        tuple(dict.fromkeys(curve.run for curve in expected.curves)),
        is_extrapolated(expected.scope, hosts * per_host),
    )


def unlimited(
    setting: EstimateInputs, collective: str, hosts: int, per_host: int, size_bytes: int
) -> EstimateInputs:
    """The setting without limits that do not change NCCL's choice, as in published runs."""
    if setting.may == ALL_ALLOWED:
        return setting
    free = replace(setting, may=ALL_ALLOWED)
    limited_choice = estimate(setting, collective, hosts, per_host, size_bytes)
    free_choice = estimate(free, collective, hosts, per_host, size_bytes)
    if limited_choice is None or free_choice is None:
        return setting
    names = (limited_choice.algorithm, limited_choice.protocol)
    return free if names == (free_choice.algorithm, free_choice.protocol) else setting


def _latency(
    setting: EstimateInputs,
    collective: str,
    shape: tuple[int, int],
    size_bytes: int,
    evidence: MeasuredCurves,
) -> float | None:
    chosen = by_links(setting, collective, *shape, size_bytes)
    if chosen is None:
        return None
    return _expected(setting, collective, shape, size_bytes, chosen, evidence).time_s


def _as_even(
    setting: EstimateInputs,
    busiest: float,
    per_host: int,
    size_bytes: int,
    evidence: MeasuredCurves,
) -> Forecast | None:
    """On one host an alltoallv takes the time of an alltoall in which each rank moves as much as
    its busiest rank, which is `busiest` times its bytes in an even exchange. Measured with
    nccl-tests' matrix on two H200 (benchmarks/node_2xh200_202611).
    """
    even_bytes = max(1, round(size_bytes * busiest))
    even = forecast(
        replace(setting, traffic=None), BY_NAME[ALLTOALL], 1, per_host, even_bytes, evidence
    )
    if even is None:
        return None
    return structs.replace(
        even,
        size_bytes=size_bytes,
        busbw=even.busbw / busiest,
        low=even.low / busiest,
        high=even.high / busiest,
    )


def _limits(
    setting: EstimateInputs, row: Collective, hosts: int, per_host: int, size_bytes: int
) -> dict[str, float]:
    """The bound of each algorithm at the rates of the links."""
    links = setting.fabric(hosts, per_host, size_bytes)
    possible = bounds(row, links, setting.system.features())
    return {bound.algorithm: bound.busbw for bound in possible}


def _left_by_collisions(
    setting: EstimateInputs, collective: str, shape: tuple[int, int], size_bytes: int
) -> float:
    """The share of busbw that the expected collisions of flows leave."""
    if shape[0] == 1 or not setting.spine.uplinks:
        return 1.0
    colliding = replace(setting, spine=replace(setting.spine, colliding=True))
    even = by_links(setting, collective, *shape, size_bytes)
    collided = by_links(colliding, collective, *shape, size_bytes)
    return even.parts.time_s / collided.parts.time_s if even and collided else 1.0


def _range(expected: ExpectedTime, size_bytes: int, ranks: int) -> tuple[float, float]:
    """The factors of the expected busbw between which measured busbw lies."""
    if expected.basis is ExpectedBasis.CALIBRATION:
        share = next(share for least, share in CALIBRATED if size_bytes >= least)
        return 1 - share, 1 + share
    limits = band(expected, size_bytes)
    if expected.scope is Scope.PCIE and expected.basis is ExpectedBasis.SAME:
        # Slots differ from host to host: runs of the same GPUs do not exclude the model's time.
        slower = expected.time_s / expected.model_s
        return limits.low * min(1.0, slower), limits.high * max(1.0, slower)
    return widened(limits.low, expected.scope, ranks), limits.high


def _expected(
    setting: EstimateInputs,
    collective: str,
    shape: tuple[int, int],
    size_bytes: int,
    chosen: ExpectedChoice,
    evidence: MeasuredCurves,
) -> ExpectedTime:
    job, links = job_of(setting, collective, *shape), links_of(setting, shape[1])
    own = [curve for curve in evidence.calibration if curve.collective == collective]
    measured_s = _times(own, shape, size_bytes)
    if measured_s:
        return ExpectedTime(
            exp(fmean(map(log, measured_s))),
            scope_of(job, links, chosen.algorithm),
            ExpectedBasis.CALIBRATION,
        )
    expected = _from_published(setting, collective, shape, size_bytes, chosen, evidence.known)
    left = channels_left(setting, chosen.algorithm, *shape)
    if left < 1:  # no published run is of fewer channels
        longer_s = expected.time_s + chosen.parts.transfer_s * (1 / left - 1)
        expected = replace(expected, time_s=longer_s, basis=ExpectedBasis.MODEL)
    off = _carried(setting, collective, shape, size_bytes, own)
    return replace(expected, time_s=expected.time_s * exp(off)) if off else expected


def _from_published(
    setting: EstimateInputs,
    collective: str,
    shape: tuple[int, int],
    size_bytes: int,
    chosen: ExpectedChoice,
    known: Reference,
) -> ExpectedTime:
    """The expected time by published runs, which are at the full rate of the network. A spine that
    slows the NICs down makes the model's time longer, and none shorter.
    """
    expected = _from_runs(setting, collective, shape, size_bytes, chosen, known)
    if expected.scope is not Scope.DOMAINS:
        return expected
    # Racks do what each one does alone, and more.
    alone = forecast(setting, BY_NAME[collective], 1, shape[1], size_bytes, MeasuredCurves(known))
    return replace(expected, time_s=max(expected.time_s, alone.time_s if alone else 0.0))


def _from_runs(
    setting: EstimateInputs,
    collective: str,
    shape: tuple[int, int],
    size_bytes: int,
    chosen: ExpectedChoice,
    known: Reference,
) -> ExpectedTime:
    job, links = job_of(setting, collective, *shape), links_of(setting, shape[1])
    known = comparable(known, setting, shape[0], chosen.algorithm)
    plain = _is_plain(setting, shape[0])
    if not plain or setting.nic_divisor(collective, chosen.algorithm, *shape) == 1:
        return expect(job, size_bytes, chosen, links, known)
    slowed = expect(job, size_bytes, chosen, links, NO_RUNS)
    full = replace(setting, spine=Spine())
    even = by_links(full, collective, *shape, size_bytes)
    if even is None:
        return slowed
    at_full_rate = expect(job, size_bytes, even, links, known)
    return replace(slowed, time_s=max(slowed.time_s, at_full_rate.time_s))


def job_of(setting: EstimateInputs, collective: str, hosts: int, per_host: int) -> ReferenceJob:
    """The job that a setting describes."""
    system = setting.system
    return ReferenceJob(
        gpu_word(system.gpu),
        collective,
        hosts,
        per_host,
        system.fabric(hosts, per_host).nics,
        rails_of(system.nics_of(per_host), per_host) if hosts > 1 else 0,
        system.network.name if system.network else "",
        setting.dtype,
        setting.op,
        NVLS in setting.may.algorithms,
    )


def links_of(setting: EstimateInputs, per_host: int) -> GpuLinks:
    """The links of a GPU to its peers, with `per_host` GPUs."""
    model = setting.system.fabric(1, per_host, payload=True)
    return GpuLinks(model.gpu or setting.system.planned, setting.system.over_nvlink)


def comparable(known: Reference, setting: EstimateInputs, hosts: int, algorithm: str) -> Reference:
    """The runs that say something about a setting that allows NCCL this algorithm: all where NCCL
    chooses, else those whose sources say that they ran it.
    """
    if _is_plain(setting, hosts):
        return known
    return _of_algorithm(known, algorithm) if _is_even(setting) else NO_RUNS


def _is_plain(setting: EstimateInputs, hosts: int) -> bool:
    """Whether published runs are of such a setting: NCCL chooses, and the exchange is even. On one
    host rings are measured too: of types that NVSwitches do not reduce.
    """
    may = setting.may
    rings = hosts == 1 and RING in may.algorithms and may.protocols == ALL_ALLOWED.protocols
    return _is_even(setting) and (rings or may == ALL_ALLOWED)


def _is_even(setting: EstimateInputs) -> bool:
    return setting.traffic is None and not setting.system.part_unknown


def _of_algorithm(known: Reference, algorithm: str) -> Reference:
    """The runs whose sources say that they ran this algorithm."""
    ran = (
        tuple(c for c in curves if c.algorithm == algorithm)
        for curves in (known.published, known.own)
    )
    published, own = ran
    return Reference(published, known.sources, own)


def _times(
    curves: Sequence[ReferenceCurve], shape: tuple[int, int], size_bytes: int
) -> list[float]:
    """What calibrations of this shape measured for a size, in seconds."""
    times = [curve.time_s(size_bytes) for curve in curves if (curve.hosts, curve.per_host) == shape]
    return [time_s for time_s in times if time_s is not None]


def _calibrated_share(
    setting: EstimateInputs,
    collective: str,
    shape: tuple[int, int],
    size_bytes: int,
    evidence: MeasuredCurves,
) -> float:
    """What calibrations of this shape took of the time without them, at the next size that they
    have; 1 where they have this size.
    """
    own = [curve for curve in evidence.calibration if curve.collective == collective]
    least = min(curve.sizes[0] for curve in own if (curve.hosts, curve.per_host) == shape)
    if least <= size_bytes:
        return 1.0
    measured_s = _latency(setting, collective, shape, least, evidence)
    known_s = _latency(setting, collective, shape, least, replace(evidence, calibration=()))
    return measured_s / known_s if measured_s and known_s else 1.0


def _carried(
    setting: EstimateInputs,
    collective: str,
    shape: tuple[int, int],
    size_bytes: int,
    own: Sequence[ReferenceCurve],
) -> float:
    """The logarithm of the factor by which calibrations on other numbers of hosts took longer than
    the model at this size; 0 without one of as many ranks on each.
    """
    offs = []
    for curve in own:
        if curve.per_host != shape[1]:
            continue
        at = round(min(max(size_bytes, curve.sizes[0]), curve.sizes[-1]))
        chosen = by_links(setting, collective, curve.hosts, curve.per_host, at)
        measured_s = curve.time_s(at)
        if chosen is None or measured_s is None:
            continue
        job = job_of(setting, collective, curve.hosts, curve.per_host)
        if curve.hosts > 1:
            near = min(1.0, CARRIES * curve.hosts / shape[0])
            offs.append(near * log(measured_s / modelled_s(job, chosen)))
    return fmean(offs) if offs and shape[0] > 1 else 0.0


def crossing(
    setting: EstimateInputs, row: Collective, hosts: int, per_host: int, evidence: MeasuredCurves
) -> Crossing:
    """The size from which on the bytes take more of the time than the latency."""
    last, size = 0, 8  # the last size at which latency takes more, and the next to try
    while size <= MAX_SIZE_BYTES:
        expected = forecast(setting, row, hosts, per_host, size, evidence)
        if expected is not None and expected.regime == "latency":
            last = size
        size *= 2
    if last >= MAX_SIZE_BYTES:
        return Crossing(hosts, hosts * per_host, None)
    return Crossing(hosts, hosts * per_host, max(2 * last, 8))
