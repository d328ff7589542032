"""The expected time of one operation: from measured curves where there are any, else from NCCL's
cost model with coefficients that were fitted to measured curves.

On one host over NVLink it is the time of the curves of the most similar GPUs. A curve of GPUs with
other links is read at the size that keeps those links busy for as long. For a number of GPUs
without a curve, the time of a byte is interpolated in 1 / (n - 1), in which that of a ring is
linear.

Elsewhere NCCL's model expects a latency of L seconds and a transfer time of B seconds, and the time
is B + a L + f B / (B + K) with fitted a, f and K (`Coefficients`). The third term is for filling
the pipeline: f seconds, of which a message that is over sooner pays a part. Curves of such hosts
then correct it: each says how many times slower its run is than the model expects. The time is
multiplied by the geometric mean of these factors and of the model's own, 1, so that a single curve
moves it half of the way. Curves of other numbers of hosts have less weight.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from math import exp, inf, log, log2
from statistics import fmean, median

from busbw.core.collectives import BY_NAME
from busbw.model.bounds import P2P
from busbw.model.hardware import reaches_peers
from busbw.model.nccl.choice import ExpectedChoice, Parts
from busbw.model.nccl.constants import NVLS, NVLS_TREE, RING, SIMPLE
from busbw.model.nccl.p2p import ALL_PAIRS
from busbw.model.reference.curves import Reference, ReferenceCurve
from busbw.model.reference.described import SHARP, choice_of
from busbw.model.reference.described import job_of as job_of_curve
from busbw.model.reference.similar import (
    BOARD,
    Kinship,
    ReferenceJob,
    fabric_kind,
    is_of_such_hosts,
    is_reduced_alike,
    kinship,
    nearest,
    of_shape,
    over_nvlink,
)
from busbw.model.systems import parse_system

MICRO = 1e-6
LEVEL_BYTES = 1 << 28  # from here on, busbw hardly depends on the size
LATENCY_BYTES = 1 << 12  # up to here, the time hardly does
SAME_SIZE = 1.1  # as a factor
HALF_WEIGHT = 2  # doublings of the number of hosts, at which a run counts half


class Scope(StrEnum):
    """What the ranks are joined by."""

    HOST = "one host, NVLink"
    PCIE = "one host, PCIe"
    DOMAIN = "one NVLink domain of more than 8 GPUs"
    HOSTS = "several hosts, InfiniBand or RoCE"
    EFA = "several hosts, EFA"
    FABRICS = "several hosts, other fabrics"
    ALL_PAIRS = "several hosts, alltoall"
    RACK_PAIRS = "several NVLink domains of more than 8 GPUs, alltoall"
    SENDS = "several hosts, sends and receives"
    DOMAINS = "several NVLink domains of more than 8 GPUs"


# The weight of the model's own time in its mean with the times of runs, each of which has a weight
# of at most 1. It is less than 1 where runs differ less from each other than from the model.
WEIGHT_OF_MODEL = {Scope.DOMAIN: 0.5}


class ExpectedBasis(StrEnum):
    """What an expected time rests on, the best first."""

    CALIBRATION = "calibration"
    SAME = "same system"
    SIMILAR = "similar systems"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The time of an operation from NCCL's latency L and transfer time B, all in seconds:
    B + latency * L + fill_s * B / (B + half_s).
    """

    latency: float  # by which factor the latency is larger than NCCL's
    fill_s: float  # how long the pipeline takes to fill
    half_s: float  # the transfer time of a message that pays half of `fill_s`

    def time_s(self, parts: Parts) -> float:
        """The time in seconds of the two parts that NCCL's model expects."""
        moving_s = parts.transfer_s
        filling_s = self.fill_s * moving_s / (moving_s + self.half_s)
        return moving_s + self.latency * parts.latency_s + filling_s


# What rings of so many GPUs reach of the rate that NCCL plans with over PCIe: GPUs share the links
# of switches, CPUs and sockets. The medians of benchmarks/reference_202611/pcie_hosts.csv. Data of
# GeForce cards passes through the host's memory, with as few as 2 of them.
PCIE_SHARES = {2: 0.82, 4: 0.63, 8: 0.49}
GEFORCE_SHARE = 0.59
# Those of several hosts are fitted by benchmarks/reference_errors.py.
HOST_FIT = Coefficients(1.0, 100e-6, 100e-6)
HOSTS_FIT = Coefficients(1.4, 250e-6, 200e-6)
# NVLSTree on racks, of which each level of the trees fills a pipeline: 2 and 20 of GB200.
RACKS_FIT = Coefficients(3.0, 500e-6, 400e-6)
# NCCL's own latency of an all_reduce ring over several hosts with Simple counts its pipeline
# (RING_PLATEAU); of sends and receives no measurement says more than the model.
AS_MODELLED = Coefficients(1.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """An expected time, what it rests on, the curves that it comes from, and the time of the model
    alone.
    """

    time_s: float
    scope: Scope
    basis: ExpectedBasis
    curves: tuple[ReferenceCurve, ...] = ()
    model_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """The links of a GPU to its peers: what NCCL plans with for them, in bytes per second."""

    planned: float
    nvlink: bool


def scope_of(job: ReferenceJob, links: GpuLinks, algorithm: str) -> Scope:
    """What joins the ranks of a job, and how they exchange data between hosts."""
    if job.hosts == 1:
        if not links.nvlink:
            return Scope.PCIE
        return Scope.HOST if job.per_host <= BOARD else Scope.DOMAIN
    if algorithm == P2P:
        pairs = Scope.RACK_PAIRS if job.per_host > BOARD else Scope.ALL_PAIRS
        return pairs if job.collective in ALL_PAIRS else Scope.SENDS
    if job.per_host > BOARD:
        return Scope.DOMAINS
    if job.fabric.startswith("efa"):
        return Scope.EFA
    return Scope.FABRICS if fabric_kind(job.fabric) else Scope.HOSTS


def expect(
    job: ReferenceJob,
    size_bytes: int,
    choice: ExpectedChoice,
    links: GpuLinks,
    known: Reference,
    hosts_fit: Coefficients = HOSTS_FIT,
) -> ExpectedTime:
    """The expected time of `size_bytes` where NCCL's model expects `choice`."""
    scope = scope_of(job, links, choice.algorithm)
    curves = [
        curve
        for curve in known.of(job.collective)
        if over_nvlink(curve.gpu) == links.nvlink and is_reduced_alike(curve, job, choice.algorithm)
    ]
    time_s = modelled_s(job, choice, hosts_fit)
    if scope is Scope.HOST:
        board = _from_board(job, size_bytes, links, _of_boards(curves, size_bytes, links))
        return board or ExpectedTime(time_s, scope, ExpectedBasis.MODEL)
    if not links.nvlink and job.per_host > 1:
        # What a ring reaches over the slots limits several hosts as it does one.
        rate = pcie_share(job.gpu, job.per_host) * links.planned
        time_s = max(time_s, size_bytes * _factor(job, job.ranks) / rate)
    in_network = choice.algorithm == NVLS and job.hosts > 1
    named = (SHARP,) if in_network else ("", choice.algorithm)
    ran_alike = [curve for curve in curves if curve.algorithm in named]
    return replace(_corrected(job, size_bytes, time_s, scope, ran_alike, hosts_fit), model_s=time_s)


def pcie_share(gpu: str, gpus: int) -> float:
    """What a ring of GPUs reaches over PCIe of the rate that NCCL plans with: between two numbers
    of GPUs that were measured, by interpolation in their logarithms.
    """
    if not reaches_peers(gpu):
        return GEFORCE_SHARE
    measured = sorted(PCIE_SHARES)
    above = next((count for count in measured if count >= gpus), measured[-1])
    below = next((count for count in reversed(measured) if count <= gpus), measured[0])
    part = log(gpus / below) / log(above / below) if below < above else 0.0
    return PCIE_SHARES[below] + part * (PCIE_SHARES[above] - PCIE_SHARES[below])


def _of_boards(
    curves: Sequence[ReferenceCurve], size_bytes: int, links: GpuLinks
) -> list[ReferenceCurve]:
    """The curves of one host that say something about a size."""
    return [
        curve
        for curve in curves
        if curve.hosts == 1
        and curve.per_host <= BOARD
        and _reaches(curve, _busy_alike(curve, size_bytes, links))
    ]


def modelled_s(
    job: ReferenceJob, choice: ExpectedChoice, hosts_fit: Coefficients = HOSTS_FIT
) -> float:
    """The time of NCCL's model with the fitted coefficients, in seconds."""
    return _coefficients(job, choice, hosts_fit).time_s(choice.parts)


def _coefficients(
    job: ReferenceJob, choice: ExpectedChoice, hosts_fit: Coefficients
) -> Coefficients:
    if choice.algorithm == NVLS_TREE and job.per_host > BOARD:
        return replace(RACKS_FIT, fill_s=RACKS_FIT.fill_s * 2 * log2(job.hosts))
    simple_ring = (choice.algorithm, choice.protocol) == (RING, SIMPLE)
    ring_of_hosts = job.hosts > 1 and simple_ring and job.collective == "all_reduce"
    if choice.algorithm == P2P or ring_of_hosts:
        return AS_MODELLED
    if job.hosts > 1:
        return hosts_fit
    if choice.algorithm != NVLS:
        return HOST_FIT
    # Every GPU is the head of a part of the data: with more GPUs, pipelines fill for longer.
    more = job.per_host / BOARD
    return replace(HOST_FIT, fill_s=HOST_FIT.fill_s * more, half_s=HOST_FIT.half_s * more)


def _corrected(
    job: ReferenceJob,
    size_bytes: int,
    time_s: float,
    scope: Scope,
    curves: Sequence[ReferenceCurve],
    hosts_fit: Coefficients = HOSTS_FIT,
) -> ExpectedTime:
    """The model's time `time_s`, corrected by runs on such hosts as the module's docstring says."""
    by_hosts: dict[int, list[ReferenceCurve]] = {}
    for curve in curves:
        if is_of_such_hosts(curve, job) and _reaches(curve, size_bytes):
            by_hosts.setdefault(curve.hosts, []).append(curve)
    used: list[ReferenceCurve] = []
    weights, moved, basis = WEIGHT_OF_MODEL.get(scope, 1.0), 0.0, ExpectedBasis.MODEL
    for hosts in sorted(by_hosts, key=lambda hosts: _apart(hosts, job.hosts)):
        alike, closest = nearest(by_hosts[hosts], job.gpu)
        offs = _offs(job, size_bytes, time_s, alike, hosts_fit)
        near = 1 / (1 + (_apart(hosts, job.hosts) / HALF_WEIGHT) ** 2)
        if closest > Kinship.TWIN or not offs:
            continue
        weights += near * len(offs)
        moved += near * len(offs) * median(offs)
        used += alike
        if basis is ExpectedBasis.MODEL:
            same = closest is Kinship.SAME and bool(of_shape(alike, job))
            basis = ExpectedBasis.SAME if same else ExpectedBasis.SIMILAR
    return ExpectedTime(time_s * exp(moved / weights), scope, basis, tuple(used))


def _apart(hosts: int, others: int) -> float:
    return abs(log2(hosts / others))


def _offs(
    job: ReferenceJob,
    size_bytes: int,
    time_s: float,
    curves: Sequence[ReferenceCurve],
    hosts_fit: Coefficients,
) -> list[float]:
    """For each run the logarithm of its time over what the model expects of the run's own job.

    `time_s` is what the model expects of `job`, and so of curves of the same shape. Of the curves,
    those count whose sizes are nearest to `size_bytes`.
    """
    runs: dict[str, list[float]] = {}
    nearest_miss = min(_missed_by(curve, size_bytes) for curve in curves)
    for curve in curves:
        if _missed_by(curve, size_bytes) > nearest_miss * SAME_SIZE:
            continue
        modelled = time_s
        if not of_shape([curve], job):
            choice = choice_of(curve, size_bytes)
            if choice is None:
                continue
            modelled = modelled_s(job_of_curve(curve), choice, hosts_fit)
        off = log(_extended_s(curve, size_bytes) / modelled)
        runs.setdefault(curve.run, []).append(off)
    return [fmean(offs) for offs in runs.values()]


def _reaches(curve: ReferenceCurve, size_bytes: float) -> bool:
    """Whether a size is within a curve's sizes, or beyond an end at which the curve is flat: in
    busbw from LEVEL_BYTES on, in time up to LATENCY_BYTES.
    """
    first, last = curve.sizes[0], curve.sizes[-1]
    level = size_bytes > last >= LEVEL_BYTES or size_bytes < first <= LATENCY_BYTES
    return level or first <= size_bytes <= last


def _from_board(
    job: ReferenceJob, size_bytes: int, links: GpuLinks, curves: Sequence[ReferenceCurve]
) -> ExpectedTime | None:
    """The time by curves of one host; None without any for this number of GPUs or fewer."""
    counts = _counts_to_read(job, curves)
    if not counts:
        return None
    used: list[ReferenceCurve] = []
    byte_s, closest = [], Kinship.SAME
    for count in counts:
        alike, closest = nearest([curve for curve in curves if curve.per_host == count], job.gpu)
        byte_s.append(_typical_time(alike, size_bytes, links) / _factor(job, count))
        used += alike
    same = closest is Kinship.SAME and counts == [job.per_host]
    if len(counts) > 1:
        left, at, right = (1 / (count - 1) for count in (counts[0], job.per_host, counts[1]))
        byte_s[0] += (at - left) / (right - left) * (byte_s[1] - byte_s[0])
    time_s = byte_s[0] * _factor(job, job.per_host)
    return ExpectedTime(
        time_s, Scope.HOST, ExpectedBasis.SAME if same else ExpectedBasis.SIMILAR, tuple(used)
    )


def _counts_to_read(job: ReferenceJob, curves: Sequence[ReferenceCurve]) -> list[int]:
    """The numbers of GPUs whose curves say most about a job: its own, or one on each side of it
    where these are of GPUs that are more alike; else the largest below it, whose busbw stays.
    """
    kin: dict[int, Kinship] = {}
    for curve in curves:
        alike = kinship(job.gpu, curve.gpu)
        kin[curve.per_host] = min(alike, kin.get(curve.per_host, Kinship.OTHER))
    for closest in Kinship:
        if kin.get(job.per_host) is closest:
            return [job.per_host]
        counts = [count for count, alike in kin.items() if alike <= closest]
        fewer = max((count for count in counts if count < job.per_host), default=0)
        more = min((count for count in counts if count > job.per_host), default=0)
        if fewer and more:
            return [fewer, more]
    return sorted(count for count in kin if count < job.per_host)[-1:]


def _factor(job: ReferenceJob, ranks: int) -> float:
    return float(BY_NAME[job.collective].bus_factor(ranks))


def _typical_time(
    curves: Sequence[ReferenceCurve], size_bytes: int, links: GpuLinks | None = None
) -> float:
    """The median of the runs' times in seconds, over `links` if given; of those that measured this
    size if there are any, else of those that came nearest to it. A run with several curves counts
    once.
    """
    read = [(curve, _busy_alike(curve, size_bytes, links)) for curve in curves]
    nearest_miss = min(_missed_by(curve, size) for curve, size in read)
    runs: dict[str, list[float]] = {}
    for curve, size in read:
        if _missed_by(curve, size) <= nearest_miss * SAME_SIZE:
            runs.setdefault(curve.run, []).append(log(_extended_s(curve, size)))
    return exp(median(sum(logs) / len(logs) for logs in runs.values()))


def _missed_by(curve: ReferenceCurve, size_bytes: float) -> float:
    """How many times larger or smaller a size is than those that a curve has; 1 if it has it."""
    if not size_bytes:
        return 1.0
    return max(1.0, size_bytes / curve.sizes[-1], curve.sizes[0] / size_bytes)


def _busy_alike(curve: ReferenceCurve, size_bytes: int, links: GpuLinks | None) -> float:
    """The size that keeps the links of a curve's GPUs as busy as this one keeps `links`."""
    if links is None:
        return size_bytes
    return size_bytes * _planned(curve.gpu, curve.per_host) / links.planned


@cache
def _planned(gpu: str, per_host: int) -> float:
    return parse_system(f"{gpu}x{per_host}").planned


def _extended_s(curve: ReferenceCurve, size_bytes: float) -> float:
    """The time of a size in seconds: beyond the largest measured size by the rate between the last
    two, below the smallest that of the smallest. A time that is longer than that of a larger size
    is an outlier, and the shorter one counts.
    """
    inside_s = curve.time_s(size_bytes)
    larger_us = curve.times_us[bisect_right(curve.sizes, size_bytes) :]
    if inside_s is not None:
        return min(inside_s, MICRO * min(larger_us, default=inf))
    if size_bytes < curve.sizes[0]:
        return min(curve.times_us) * MICRO
    last, last_us = curve.sizes[-1], curve.times_us[-1]
    if len(curve.sizes) < 2:
        return last_us * MICRO * size_bytes / last
    byte_us = (last_us - curve.times_us[-2]) / (last - curve.sizes[-2])
    return MICRO * (last_us + (size_bytes - last) * byte_us)
