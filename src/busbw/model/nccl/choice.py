"""Which algorithm and protocol NCCL takes: those with the shortest expected time among those
that it may use.

`parts` is the time that NCCL expects of one operation: latency + bytes / rate, for each algorithm
and protocol. N ranks on Q hosts with P each. Source: src/graph/tuning.cc, ncclTopoTuneModel and
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
    AMPERE,
    LARGE_PART,
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
    PLATEAU_DELTA,
    RING,
    RING_PLATEAU,
    SIMPLE,
    TREE,
    TREE_SIZES,
    VOLTA,
    Release,
    family,
    tree_shares,
)
from busbw.model.nccl.graphs import ChannelGraph

US, GB = 1e-6, 1e9
ROOTED = ("broadcast", "reduce")
PARTS = ("all_gather", "reduce_scatter")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
SM_WITH_LL128 = (70, 80, 90)  # before NCCL 2.23


@dataclass(frozen=True, slots=True)
class Model:
    """NCCL's model of one communicator."""

    release: Release
    hosts: int
    per_host: int
    sm: int
    over_nvlink: bool
    ring: ChannelGraph
    tree: ChannelGraph
    nvls: ChannelGraph | None = None
    cpu: str = "intel"  # intel, amd or arm
    collnet: bool = False  # whether the network's switches reduce
    near: bool = True  # a PCIe switch joins GPUs and NICs; else NCCL uses no LL128 between hosts
    net_latency_us: float = 0.0  # as the network's plugin reports it

    @property
    def ranks(self) -> int:
        return self.hosts * self.per_host

    @property
    def scale(self) -> int:
        """The column of a table of rates: 0 for one host, 1 for two, 2 for more."""
        return min(self.hosts, 3) - 1

    def steps(self, collective: str) -> int:
        if collective == "all_reduce":
            return 2 * (self.ranks - 1)
        return self.ranks - 1 if collective in PARTS else self.ranks


@dataclass(frozen=True, slots=True)
class Parts:
    """A time in two parts, in seconds: `latency_s` does not depend on the size, `transfer_s` is
    what the bytes take.
    """

    latency_s: float
    transfer_s: float

    @property
    def time_s(self) -> float:
        return self.latency_s + self.transfer_s


def parts(
    model: Model, collective: str, size_bytes: int, algorithm: str, protocol: str
) -> Parts | None:
    """The expected time of `size_bytes` (as in algbw); None if NCCL has no such combination."""
    rate = _rate(model, collective, algorithm, protocol)
    if rate <= 0:
        return None
    latency = _latency(model, collective, algorithm, protocol)
    rate *= _share(model, collective, size_bytes, algorithm, protocol)
    if (algorithm, protocol) == (RING, SIMPLE):
        part_bytes = size_bytes // (2 * model.ring.channels * model.ranks)
        latency *= _plateau(model, collective, part_bytes) if part_bytes >= 64 else 1.0
    return Parts(latency * US, size_bytes / (rate * GB))


def _plateau(model: Model, collective: str, part_bytes: int) -> float:
    """The factor of a ring's latency that its pipeline costs, with so many bytes for each rank and
    channel: over several hosts in all_reduce, and from 2.32 on also on one host of Blackwell, where
    it grows with the steps and shrinks by up to 0.1 between 256 and 512 KiB.
    """
    whole = RING_PLATEAU[model.sm >= 80]
    if model.hosts > 1:
        return whole if collective == "all_reduce" else 1.0
    if not model.release.plateau_inside or not model.over_nvlink or model.sm < 100:
        return 1.0
    if collective in ROOTED:
        return 1.0
    steps = 1 - (PLATEAU_DELTA / (whole - 1)) ** max(0, model.steps(collective) - 1)
    large = min(1.0, max(0.0, part_bytes / LARGE_PART - 1))
    return 1 + steps * (whole - 1 - PLATEAU_DELTA * large)


def _share(model: Model, collective: str, size_bytes: int, algorithm: str, protocol: str) -> float:
    """The part of the rate that a tree reaches at this size."""
    if collective != "all_reduce":
        return 1.0
    sizes = 0
    if algorithm == TREE:
        sizes = TREE_SIZES
    elif algorithm == NVLS_TREE:
        corrected = model.release.nvls_tree_corrected and model.sm >= 100 and model.cpu != "arm"
        sizes = TREE_SIZES + 1 if corrected else 0
    step = (size_bytes >> 6).bit_length() - 1
    return tree_shares()[protocol][step] if 0 <= step < sizes else 1.0


def _rate(model: Model, collective: str, algorithm: str, protocol: str) -> float:
    """algbw in GB/s; 0 for a combination that NCCL does not use."""
    if algorithm == RING:
        return _ring(model, collective, protocol) * model.ranks / model.steps(collective)
    if algorithm == TREE and collective == "all_reduce":
        # With one GPU per host NCCL builds the plain tree, whose rate it counts as 85 %.
        return _tree(model, protocol) / 2 * (0.85 if model.per_host == 1 else 1)
    if protocol != SIMPLE:
        return 0.0
    if algorithm == PAT and _runs_pat(model, collective):
        return 0.75 * model.tree.channels * _tree_speed(model)
    if model.nvls is not None and _runs_nvls(model, model.nvls, collective, algorithm):
        return _nvls(model, model.nvls, collective, algorithm)
    return 0.0


def _runs_pat(model: Model, collective: str) -> bool:
    one_gpu_each = model.per_host == 1 < model.hosts
    return model.release.pat and collective in PARTS and one_gpu_each


def _runs_nvls(model: Model, graph: ChannelGraph, collective: str, algorithm: str) -> bool:
    """Whether the algorithm is NVLS or NVLSTree, and can run a collective on so many hosts."""
    if algorithm not in (NVLS, NVLS_TREE) or graph.channels <= 1:
        return False
    if algorithm == NVLS_TREE:
        return collective == "all_reduce" and model.hosts > 1
    if collective == "all_reduce":
        return model.hosts == 1 or model.collnet
    most = model.release.most_heads
    return collective in PARTS and model.hosts == 1 and (most is None or model.per_host <= most)


def _speed(model: Model, graph: ChannelGraph) -> float:
    return graph.intra if model.hosts <= 2 else graph.inter


def _tree_speed(model: Model) -> float:
    if model.release.slower_speed_of_trees:
        return min(model.tree.intra, model.tree.inter)
    return _speed(model, model.tree)


def _ll_max(model: Model) -> float:
    """LL's limit in GB/s: that of the GPU on one host, that of the CPU over several."""
    row = AMPERE if model.cpu == "amd" else VOLTA
    if model.hosts == 1:
        row = family(model.sm)
    return model.release.ll_max[row][model.scale]


def _ring(model: Model, collective: str, protocol: str) -> float:
    """A ring's busbw in GB/s."""
    rate = model.ring.channels * _speed(model, model.ring)
    if protocol == LL:
        plain, reducing = model.release.ring_ll
        reduces = model.hosts > 1 or collective in ("all_reduce", "reduce")
        return min(_ll_max(model), rate * (reducing if reduces else plain))
    if protocol == LL128:
        share = model.release.ring_ll128_alone if model.per_host == 1 else 0.92
        per_channel = model.release.ring_ll128[family(model.sm)][model.scale]
        return min(rate * share, model.ring.channels * per_channel)
    return rate


def _tree(model: Model, protocol: str) -> float:
    """A tree's rate in GB/s, twice its algbw."""
    channels, row = model.tree.channels, family(model.sm)
    limit = channels * model.release.tree[row][model.scale]
    rate = min(0.92 * channels * _tree_speed(model), limit)
    if protocol == LL:
        return min(rate / 3.8, _ll_max(model))
    if protocol == LL128:
        share = 7 / 9 if model.hosts == 1 else 120 / 128
        return min(rate * share, channels * model.release.tree_ll128[row][model.scale])
    return rate


def _nvls(model: Model, graph: ChannelGraph, collective: str, algorithm: str) -> float:
    """algbw in GB/s."""
    release, all_reduce = model.release, collective == "all_reduce"
    inter = inf if model.hosts == 1 else graph.inter
    share = (model.per_host - 1) / model.per_host
    if release.nvls_efficiency is None:
        if algorithm == NVLS_TREE and model.hosts > 2:
            inter /= 2
        if not all_reduce and release.pat:
            return graph.channels * graph.intra * share  # only on one host: see _runs_nvls
        return graph.channels * min(graph.intra, inter) * 5 / 6
    intra = graph.intra * release.nvls_efficiency[family(model.sm)]
    intra = intra * (graph.channels - 1) / graph.channels * (2 if all_reduce else share)
    limit = inf
    if algorithm == NVLS_TREE:
        inter *= 2 if model.hosts == 2 else 1
        if release.nvls_tree:
            limit = release.nvls_tree[family(model.sm)][model.scale]
    rate = graph.channels * min(intra, inter, limit)
    return rate * (model.ranks / model.steps(collective)) if all_reduce else rate


def _latency(model: Model, collective: str, algorithm: str, protocol: str) -> float:
    """The latency in microseconds."""
    release, at = model.release, PROTOCOLS.index(protocol)
    intra = release.hops[_link(model)][algorithm][at]
    tree_hop = model.per_host == 1 and release.alone_uses_tree_hop
    inter = release.hops[NET][TREE if tree_hop else algorithm][at]
    inter += model.net_latency_us * (2 if protocol == SIMPLE else 1)  # Simple also flushes
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


def _link(model: Model) -> str:
    return NVLINK if model.over_nvlink else PCI


def _ring_latency(
    model: Model, collective: str, protocol: str, intra: float, inter: float
) -> float:
    """Microseconds of all steps of a ring; `intra` and `inter` are those of one hop."""
    hosts, steps = model.hosts, model.steps(collective)
    if collective in ROOTED:
        # All channels of one host visit the GPUs in the same order, and then NCCL counts one hop;
        # over several NICs the orders differ.
        at = PROTOCOLS.index(protocol)
        hops = model.release.hops[NET if hosts > 1 else _link(model)]
        if hosts == 1 or model.ring.channels == 1:
            return hops[RING][at]
        return steps * hops[TREE if protocol == SIMPLE else RING][at]
    crossings = 0
    if hosts > 1:
        intra = max(intra, NET_OVERHEAD_US[model.cpu] * (3 if protocol == SIMPLE else 1))
        crossings = hosts - 1
        if collective == "all_reduce":
            crossings = 2 * (hosts - 1) + model.release.inter_steps_extra
    return (steps - crossings) * intra + crossings * inter


@dataclass(frozen=True, slots=True)
class AllowedAlgorithms:
    """The names of the algorithms and protocols that the settings of a run allow."""

    algorithms: tuple[str, ...] = MODELLED
    protocols: tuple[str, ...] = PROTOCOLS
    forced_ll128: bool = False


ALL_ALLOWED = AllowedAlgorithms()


@dataclass(frozen=True, slots=True)
class ExpectedChoice:
    """One algorithm and protocol with its expected time."""

    algorithm: str
    protocol: str
    parts: Parts


def allowed(environment: Mapping[str, str], collective: str) -> AllowedAlgorithms:
    """What NCCL_ALGO, NCCL_PROTO and NCCL_NVLS_ENABLE allow for a collective.

    Unknown names are ignored.
    """
    algorithms = _select(environment.get("NCCL_ALGO", ""), collective, ALGORITHMS)
    protocols = _select(environment.get("NCCL_PROTO", ""), collective, PROTOCOLS)
    if environment.get("NCCL_NVLS_ENABLE", "").strip() == "0":
        algorithms = tuple(name for name in algorithms if name not in (NVLS, NVLS_TREE))
    modelled = tuple(name for name in MODELLED if name in algorithms)
    proto = environment.get("NCCL_PROTO", "").strip()
    forced_ll128 = bool(proto) and not proto.startswith("^") and LL128 in protocols
    return AllowedAlgorithms(modelled or MODELLED, protocols, forced_ll128=forced_ll128)


def _select(text: str, collective: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that NCCL's syntax selects, as in `ring,tree`, `^ll128`, `ring;allreduce:tree`."""
    selected, title = names, collective_row(collective).title.lower()
    for part in text.lower().split(";"):
        prefix, colon, tail = part.partition(":")
        listed = (tail if colon else prefix).strip()
        if not listed or (colon and prefix.strip() != title):
            continue
        exclude = listed.startswith("^")
        stated = {name.strip() for name in listed.removeprefix("^").split(",")}
        known = tuple(name for name in names if (name.lower() in stated) != exclude)
        selected = known or selected
    return selected


def choices(
    model: Model, collective: str, size_bytes: int, may: AllowedAlgorithms | None = None
) -> list[ExpectedChoice]:
    """Every combination that NCCL may use, fastest first; [] if it uses sends and receives."""
    if collective not in COLLECTIVES:
        return []
    may = may or AllowedAlgorithms()
    protocols = may.protocols
    if not may.forced_ll128 and not has_ll128(model):
        protocols = tuple(protocol for protocol in protocols if protocol != LL128)
    possible = []
    for algorithm in may.algorithms:
        for protocol in protocols:
            timed = parts(model, collective, size_bytes, algorithm, protocol)
            if timed is not None:
                possible.append(ExpectedChoice(algorithm, protocol, timed))
    return sorted(possible, key=lambda choice: choice.parts.time_s)


def has_ll128(model: Model) -> bool:
    """Whether NCCL uses LL128 without a setting: over NVLink or with one GPU per host, over NICs
    near the GPUs, and before 2.23 on certain GPUs.
    """
    if model.sm < 70 or not (model.over_nvlink or model.per_host == 1):
        return False
    if model.hosts > 1 and not model.near:
        return False
    return model.release.ll128_from_100 or model.sm in SM_WITH_LL128
