"""Which algorithm and protocol NCCL takes: those with the shortest expected time among those
that it may use.

The time that NCCL expects of one operation: latency + bytes / rate, for each algorithm and
protocol.

N ranks on Q hosts with P each. Source: src/graph/tuning.cc, ncclTopoTuneModel and
ncclTopoGetAlgoTime, of the releases in `constants`. One difference: on one host NVLS is not limited
by the speed that the search left for the network, which no data crosses there; NCCL's own figure is
lower for fewer than 8 GPUs and for Blackwell.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log2

from busbw.core.collectives import collective as collective_row
from busbw.core.pattern import ALGORITHMS, PROTOCOLS
from busbw.model.nccl.constants import (
    LL,
    LL128,
    MODELLED,
    NET,
    NET_OVERHEAD_US,
    NVLINK,
    NVLS,
    NVLS_TREE,
    PAT,
    PAT_LOG,
    PAT_RANK_US,
    PCI,
    RING,
    RING_PLATEAU,
    SIMPLE,
    TREE,
    TREE_SHARES,
    TREE_SIZES,
    Release,
    family,
)
from busbw.model.nccl.graphs import Graph

US, GB = 1e-6, 1e9
ROOTED = ("broadcast", "reduce")
PARTS = ("all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class Model:
    """NCCL's model of one communicator.

    `cpu` is `intel`, `amd` or `arm`; `collnet` says whether the network's switches reduce.

    `near` says whether a PCIe switch joins GPUs and NICs; if data passes through the CPU, NCCL does
    not use LL128 between hosts.
    """

    release: Release
    hosts: int
    per_host: int
    sm: int
    over_nvlink: bool
    ring: Graph
    tree: Graph
    nvls: Graph | None = None
    cpu: str = "intel"
    collnet: bool = False
    near: bool = True

    @property
    def ranks(self) -> int:
        """N."""
        return self.hosts * self.per_host

    @property
    def scale(self) -> int:
        """The column of a table of rates: one host, two, more."""
        return min(self.hosts, 3) - 1

    def steps(self, collective: str) -> int:
        """Steps of a ring."""
        if collective == "all_reduce":
            return 2 * (self.ranks - 1)
        return self.ranks - 1 if collective in PARTS else self.ranks


@dataclass(frozen=True, slots=True)
class Parts:
    """A time in seconds, in two parts: what does not depend on the size, and what the bytes
    take.
    """

    latency_s: float
    transfer_s: float

    @property
    def time_s(self) -> float:
        """Their sum."""
        return self.latency_s + self.transfer_s


def parts(
    model: Model, collective: str, size_bytes: int, algorithm: str, protocol: str
) -> Parts | None:
    """The expected time of `size_bytes`, counted as algbw counts them; None if NCCL has no such
    combination.
    """
    rate = _rate(model, collective, algorithm, protocol)
    if rate <= 0:
        return None
    latency = _latency(model, collective, algorithm, protocol)
    rate *= _share(model, collective, size_bytes, algorithm, protocol)
    spread = size_bytes // (2 * model.ring.channels * model.ranks)
    if (
        collective == "all_reduce"
        and (algorithm, protocol) == (RING, SIMPLE)
        and model.hosts > 1
        and spread >= 64
    ):
        latency *= RING_PLATEAU[model.sm >= 80]
    return Parts(latency * US, size_bytes / (rate * GB))


def _share(model: Model, collective: str, size_bytes: int, algorithm: str, protocol: str) -> float:
    """The part of the rate that a tree reaches at this size."""
    step = (size_bytes >> 6).bit_length() - 1
    corrected = model.release.nvls_tree_corrected and model.sm >= 100 and model.cpu != "arm"
    sizes = {TREE: TREE_SIZES, NVLS_TREE: TREE_SIZES + 1 if corrected else 0}.get(algorithm, 0)
    return TREE_SHARES[protocol][step] if collective == "all_reduce" and 0 <= step < sizes else 1.0


def _rate(model: Model, collective: str, algorithm: str, protocol: str) -> float:
    """algbw in GB/s."""
    if algorithm == RING:
        return _ring(model, collective, protocol) * model.ranks / model.steps(collective)
    if algorithm == TREE and collective == "all_reduce":
        # With one GPU per host NCCL builds the plain tree, whose rate it counts as 85 %.
        return _tree(model, protocol) / 2 * (0.85 if model.per_host == 1 else 1)
    if (
        algorithm == PAT
        and collective in PARTS
        and protocol == SIMPLE
        and model.release.pat
        and model.per_host == 1 < model.hosts
    ):
        return 0.75 * model.tree.channels * _speed(model, model.tree)
    if (
        algorithm in (NVLS, NVLS_TREE)
        and protocol == SIMPLE
        and model.nvls is not None
        and model.nvls.channels > 1
    ):
        wanted = (
            collective == "all_reduce"
            if algorithm == NVLS_TREE
            else collective in ("all_reduce", *PARTS)
        )
        possible = (
            model.hosts > 1
            if algorithm == NVLS_TREE
            else model.hosts == 1 or (model.collnet and collective == "all_reduce")
        )
        return _nvls(model, model.nvls, collective, algorithm) if wanted and possible else 0.0
    return 0.0


def _speed(model: Model, graph: Graph) -> float:
    return graph.intra if model.hosts <= 2 else graph.inter


def _ll_max(model: Model) -> float:
    """LL's limit: that of the GPU on one host, that of the CPU over several."""
    row = family(model.sm) if model.hosts == 1 else family(80 if model.cpu == "amd" else 70)
    return model.release.ll_max[row][model.scale]


def _ring(model: Model, collective: str, protocol: str) -> float:
    rate = model.ring.channels * _speed(model, model.ring)
    if protocol == LL:
        plain, reducing = model.release.ring_ll
        return min(
            _ll_max(model),
            rate
            * (reducing if model.hosts > 1 or collective in ("all_reduce", "reduce") else plain),
        )
    if protocol == LL128:
        share = model.release.ring_ll128_alone if model.per_host == 1 else 0.92
        return min(
            rate * share,
            model.ring.channels * model.release.ring_ll128[family(model.sm)][model.scale],
        )
    return rate


def _tree(model: Model, protocol: str) -> float:
    channels, row = model.tree.channels, family(model.sm)
    rate = min(
        0.92 * channels * _speed(model, model.tree), channels * model.release.tree[row][model.scale]
    )
    if protocol == LL:
        return min(rate / 3.8, _ll_max(model))
    if protocol == LL128:
        share = 7 / 9 if model.hosts == 1 else 120 / 128
        return min(rate * share, channels * model.release.tree_ll128[row][model.scale])
    return rate


def _nvls(model: Model, graph: Graph, collective: str, algorithm: str) -> float:
    """algbw in GB/s."""
    release, whole = model.release, collective == "all_reduce"
    inter = inf if model.hosts == 1 else graph.inter
    share = (model.per_host - 1) / model.per_host
    if release.nvls_efficiency is None:
        if algorithm == NVLS_TREE and model.hosts > 2:
            inter /= 2
        if not whole and release.pat:
            return graph.channels * graph.intra * share  # on one host alone: see _rate
        return graph.channels * min(graph.intra, inter) * 5 / 6
    intra = (
        graph.intra
        * release.nvls_efficiency[family(model.sm)]
        * (graph.channels - 1)
        / graph.channels
        * (2 if whole else share)
    )
    limit = inf
    if algorithm == NVLS_TREE:
        inter *= 2 if model.hosts == 2 else 1
        limit = release.nvls_tree[family(model.sm)][model.scale] if release.nvls_tree else inf
    return (
        graph.channels
        * min(intra, inter, limit)
        * (model.ranks / model.steps(collective) if whole else 1)
    )


def _latency(model: Model, collective: str, algorithm: str, protocol: str) -> float:
    """Microseconds."""
    release, at = model.release, PROTOCOLS.index(protocol)
    intra = release.hops[NVLINK if model.over_nvlink else PCI][algorithm][at]
    alone = model.per_host == 1 and release.alone_uses_tree_hop
    inter = release.hops[NET][TREE if alone else algorithm][at]
    base, levels = release.base[algorithm][at], int(log2(model.hosts))
    if algorithm == RING:
        return base + _ring_latency(model, collective, protocol, intra, inter)
    if algorithm == TREE:
        return base + 2 * ((model.per_host - 1) * intra + levels * inter)
    if algorithm == NVLS:
        return intra + (inter if model.hosts > 1 else 0)
    if algorithm == NVLS_TREE:
        return base + intra + 2 * levels * inter
    return base + levels * inter / PAT_LOG + model.ranks * PAT_RANK_US


def _ring_latency(
    model: Model, collective: str, protocol: str, intra: float, inter: float
) -> float:
    hosts, steps = model.hosts, model.steps(collective)
    if collective in ROOTED:
        # All channels of one host visit the GPUs in the same order, and then NCCL counts one hop;
        # over several NICs the orders differ.
        at, link = (
            PROTOCOLS.index(protocol),
            (NET if hosts > 1 else NVLINK if model.over_nvlink else PCI),
        )
        if hosts == 1 or model.ring.channels == 1:
            return model.release.hops[link][RING][at]
        return steps * model.release.hops[link][TREE if protocol == SIMPLE else RING][at]
    crossings = 0
    if hosts > 1:
        intra = max(intra, NET_OVERHEAD_US[model.cpu] * (3 if protocol == SIMPLE else 1))
        crossings = (
            2 * (hosts - 1) + model.release.inter_steps_extra
            if collective == "all_reduce"
            else hosts - 1
        )
    return (steps - crossings) * intra + crossings * inter


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
SM_WITH_LL128 = (70, 80, 90)  # before NCCL 2.23


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the settings of a run leave: names of algorithms and of protocols."""

    algorithms: tuple[str, ...] = MODELLED
    protocols: tuple[str, ...] = PROTOCOLS
    forced_ll128: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """One algorithm and protocol with its expected time."""

    algorithm: str
    protocol: str
    parts: Parts


def allowed(environment: Mapping[str, str], collective: str) -> Allowed:
    """What NCCL_ALGO, NCCL_PROTO and NCCL_NVLS_ENABLE leave for a collective.

    Unknown names count as not given.
    """
    algorithms = _listed(environment.get("NCCL_ALGO", ""), collective, ALGORITHMS)
    protocols = _listed(environment.get("NCCL_PROTO", ""), collective, PROTOCOLS)
    nvls = environment.get("NCCL_NVLS_ENABLE", "").strip() != "0"
    left = tuple(
        name for name in MODELLED if name in algorithms and (nvls or name not in (NVLS, NVLS_TREE))
    )
    wanted = environment.get("NCCL_PROTO", "").strip()
    return Allowed(
        left or MODELLED,
        protocols,
        forced_ll128=bool(wanted) and not wanted.startswith("^") and LL128 in protocols,
    )


def _listed(text: str, collective: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in NCCL's syntax: `ring,tree`, `^ll128`, and since 2.24 `ring;allreduce:tree`."""
    left, title = names, collective_row(collective).title.lower()
    for part in text.lower().split(";"):
        prefix, colon, tail = part.partition(":")
        listed = (tail if colon else prefix).strip()
        if not listed or (colon and prefix.strip() != title):
            continue
        given = {name.strip() for name in listed.removeprefix("^").split(",")}
        known = tuple(name for name in names if (name.lower() in given) != listed.startswith("^"))
        left = known or left
    return left


def choices(
    model: Model, collective: str, size_bytes: int, may: Allowed | None = None
) -> list[Choice]:
    """Every combination that NCCL may use, the fastest first; empty for a collective that it
    builds of sends and receives.
    """
    if collective not in COLLECTIVES:
        return []
    may = may or Allowed()
    found = [
        Choice(algorithm, protocol, timed)
        for algorithm in may.algorithms
        for protocol in may.protocols
        if (protocol != LL128 or may.forced_ll128 or has_ll128(model))
        and (timed := parts(model, collective, size_bytes, algorithm, protocol)) is not None
    ]
    return sorted(found, key=lambda choice: choice.parts.time_s)


def has_ll128(model: Model) -> bool:
    """Whether NCCL uses LL128 unasked: over NVLink or with one GPU per host, over NICs near the
    GPUs, and before 2.23 on certain GPUs.
    """
    if (
        not (model.over_nvlink or model.per_host == 1)
        or model.sm < 70
        or (model.hosts > 1 and not model.near)
    ):
        return False
    return model.release.ll128_from_100 or model.sm in SM_WITH_LL128
