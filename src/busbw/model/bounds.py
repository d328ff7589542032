"""The largest bus bandwidth of each algorithm over the links found, without protocol overhead,
latency or other traffic.

Letters in formulas: N ranks on Q hosts with P each; B is a GPU's link to its peers, I all NICs of a
host, R one NIC, each in one direction; t is the share of I that each byte gets on the busiest host
of a double tree: 1, 2/3 or 1/2; f = busbw / algbw. Ranks are numbered host by host. Of an
alltoallv, S is (N-1)/N of the size, X the bytes of the busiest rank to or from the other ranks, and
Y those of the busiest host to or from the other hosts. An algorithm's bound is f x the smallest
term, whose link binds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from busbw.core.collectives import Collective
from busbw.core.rates import parse_rate
from busbw.core.result import Ideal
from busbw.model.fabric import Fabric, gb

GIVEN_LABEL = "given"
ENDPOINT = "endpoint-optimal"
P2P = "point-to-point"
RING_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class Term:
    """One limit on busbw / f in bytes per second: formula in letters, formula with numbers in
    GB/s, and the link it comes from.
    """

    rate: float
    formula: str
    numbers: str
    link: str


@dataclass(frozen=True, slots=True)
class Features:
    """What the run may use: NVLink SHARP multicast, and reduction in the switches of the network
    (CollNet).
    """

    nvls: bool = False
    collnet: bool = False


Terms = Callable[[Fabric], list[Term]]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm and its bound.

    `runs` tells whether it can run on a fabric with some features. The smallest of the `terms` is
    the limit, multiplied by f if `times_factor`. `why` is the reason for the bound.
    """

    name: str
    collectives: tuple[str, ...]
    runs: Callable[[Fabric, Features], bool]
    terms: Terms
    why: str
    times_factor: bool = False


def _gpu(fab: Fabric, share: float = 1.0, formula: str = "B") -> list[Term]:
    return [] if fab.gpu is None else [_scaled(fab.gpu, share, formula, fab.gpu_link)]


def _nic(fab: Fabric, share: float = 1.0, formula: str = "I") -> list[Term]:
    return [] if fab.hosts == 1 else [_scaled(fab.nics, share, formula, fab.nic_link)]


def _scaled(rate: float, share: float, formula: str, link: str) -> Term:
    numbers = gb(rate) if share == 1 else f"{gb(rate)} x {share:.4g}"
    return Term(rate * share, formula, numbers, link)


def tree_share(hosts: int) -> float:
    """The share of I for each byte on the busiest host of a double binary tree, whose degrees
    add up to 2, 3, then 4.
    """
    return {1: 1.0, 2: 1.0, 3: 2 / 3}.get(hosts, 0.5)


def _tree(fab: Fabric) -> list[Term]:
    # In a chain of two GPUs each sends the data once. From three GPUs on, those in the middle send
    # it up and down. B/2 assumes the same order of GPUs in all channels; with different orders the
    # bound would be B P/(2(P-1)).
    gpu = _gpu(fab) if fab.per_host == 2 else _gpu(fab, 1 / 2, "B/2")
    return gpu + _nic(fab, tree_share(fab.hosts), "I t")


def _nvls(fab: Fabric) -> list[Term]:
    p = fab.per_host
    return _gpu(fab, p / (p + 1), "B P/(P+1)") + _nic(fab)


def _nvls_tree(fab: Fabric) -> list[Term]:
    p = fab.per_host
    return _gpu(fab, p / (p + 1), "B P/(P+1)") + _nic(fab, tree_share(fab.hosts), "I t")


def _direct(fab: Fabric) -> list[Term]:
    p = fab.per_host
    within = _gpu(fab, p / (2 * (p - 1)), "B P/(2(P-1))") if p > 1 else []
    return within + _nic(fab)


def _exchange(fab: Fabric) -> list[Term]:
    n, p = fab.ranks, fab.per_host
    share = (n - 1) / (p * (n - p)) if n > p else 0
    return _gpu(fab) + (_nic(fab, share, "I (N-1)/(P(N-P))") if share else [])


def _uneven(fab: Fabric) -> list[Term]:
    traffic = fab.traffic
    if traffic is None:
        return _exchange(fab)
    counted = traffic.size_bytes * (fab.ranks - 1) / fab.ranks  # what busbw divides by the time
    terms = _gpu(fab, counted / traffic.rank_bytes, "B S/X")
    if traffic.host_bytes:
        terms += _nic(fab, counted / traffic.host_bytes, "I S/Y")
    return terms


def _neighbours(fab: Fabric) -> list[Term]:
    if fab.hosts == 1:
        return _gpu(fab)
    share = fab.nics / fab.per_host
    rate, formula = max((share, "I/P"), (fab.rail, "R"))
    return [*_gpu(fab), Term(rate, formula, gb(rate), fab.nic_link)]


def _root(fab: Fabric) -> list[Term]:
    n, p = fab.ranks, fab.per_host
    if fab.hosts == 1:
        return _gpu(fab)
    share = (n - 1) / (n - p)
    terms = _nic(fab, share, "I (N-1)/(N-P)")
    if not fab.over_nvlink:
        slot = fab.gpu or fab.pcie
        if slot:
            terms.append(Term(slot, "root's PCIe", gb(slot), "PCIe of the root's GPU"))
    elif fab.gpu and fab.pcie:
        both = f"{fab.gpu_link}, and PCIe, {gb(fab.pcie)} GB/s"
        numbers = f"{gb(fab.gpu)} + {gb(fab.pcie)}"
        terms.append(Term(fab.gpu + fab.pcie, "B + PCIe", numbers, both))
    return terms


def _rounds(fab: Fabric) -> list[Term]:
    n, p = fab.ranks, fab.per_host
    if fab.hosts == 1 or fab.gpu is None:
        return _gpu(fab) + _nic(fab)
    within, between = (p - 1) / fab.gpu, p * (n - p) / fab.nics
    rate = (n - 1) / (within + between)
    numbers = f"{n - 1} / ({p - 1}/{gb(fab.gpu)} + {p * (n - p)}/{gb(fab.nics)})"
    slower = fab.nic_link if between > within else fab.gpu_link
    return [Term(rate, "(N-1) / ((P-1)/B + P(N-P)/I)", numbers, slower)]


def _always(fab: Fabric, may: Features) -> bool:
    return True


def _multicast(fab: Fabric, may: Features) -> bool:
    return may.nvls and fab.over_nvlink and fab.per_host > 1


# Ring to PAT: the load of NCCL's algorithms on links; the factor 1 + 1/P of NVLS is NVIDIA's
# (NVIDIA/nccl issue 2140).
ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        "Ring",
        RING_COLLECTIVES,
        _always,
        lambda f: _gpu(f) + _nic(f),
        "every GPU forwards busbw to the next of its ring; between hosts, over the NICs",
    ),
    Algorithm(
        "Tree",
        ("all_reduce",),
        _always,
        _tree,
        "a GPU in the middle of its host's chain sends the data up and down",
        times_factor=True,
    ),
    Algorithm(
        "NVLS",
        ("all_reduce",),
        lambda f, may: _multicast(f, may) and (f.hosts == 1 or may.collnet),
        _nvls,
        "the switch reduces: each GPU moves the data 1 + 1/P times",
        times_factor=True,
    ),
    Algorithm(
        "NVLS",
        ("all_gather", "reduce_scatter"),
        lambda f, may: _multicast(f, may) and f.hosts == 1,
        _gpu,
        "multicast also returns each GPU's own share",
        times_factor=True,
    ),
    Algorithm(
        "NVLSTree",
        ("all_reduce",),
        lambda f, may: _multicast(f, may) and f.hosts > 1,
        _nvls_tree,
        "NVLS within hosts and a double tree between them, which sends each byte over the wire"
        " once",
        times_factor=True,
    ),
    Algorithm(
        "CollNetChain",
        ("all_reduce",),
        lambda f, may: may.collnet and f.hosts > 1,
        lambda f: _gpu(f, 1 / 2, "B/2") + _nic(f),
        "the network reduces: data enters and leaves each host once",
        times_factor=True,
    ),
    Algorithm(
        "CollNetDirect",
        ("all_reduce",),
        lambda f, may: may.collnet and f.hosts > 1,
        _direct,
        "the network reduces: data enters and leaves each host once",
        times_factor=True,
    ),
    Algorithm(
        "PAT",
        ("all_gather", "reduce_scatter"),
        lambda f, may: f.hosts > 1 and f.per_host == 1,
        _nic,
        "each host receives the shares of the others once",
    ),
    Algorithm(P2P, ("alltoall",), _always, _exchange, "each host sends P(N-P)/N of the data out"),
    Algorithm(
        P2P,
        ("alltoallv",),
        _always,
        _uneven,
        "the rank, or the host, that moves the most ends last (without a matrix: even)",
    ),
    Algorithm(
        P2P,
        ("sendrecv",),
        _always,
        _neighbours,
        "each rank sends to the next, over the NICs nearest to its GPU at most",
    ),
    Algorithm(
        P2P,
        ("gather", "scatter"),
        _always,
        _root,
        "all parts but the root's own pass through the root's host and GPU",
    ),
    Algorithm(
        P2P,
        ("hypercube",),
        lambda f, may: f.ranks & (f.ranks - 1) == 0,
        _rounds,
        "consecutive rounds: P-1 parts within the host, then N-P parts of each rank between hosts",
    ),
)


def bounds(row: Collective, fab: Fabric, may: Features) -> list[Ideal]:
    """One Ideal (busbw in bytes per second) for each algorithm that can run."""
    return [
        _bound(row, fab, algorithm)
        for algorithm in ALGORITHMS
        if row.name in algorithm.collectives and algorithm.runs(fab, may)
    ]


def _bound(row: Collective, fab: Fabric, algorithm: Algorithm) -> Ideal:
    factor = float(row.bus_factor(fab.ranks)) if algorithm.times_factor else 1.0
    return _ideal(algorithm.name, factor, row.formula, algorithm.terms(fab), algorithm.why)


def _ideal(name: str, factor: float, factor_text: str, terms: list[Term], why: str) -> Ideal:
    binding = min(terms, key=lambda term: term.rate)
    value = factor * binding.rate
    letters = ", ".join(term.formula for term in terms)
    numbers = ", ".join(term.numbers for term in terms)
    if len(terms) > 1:
        letters, numbers = f"min({letters})", f"min({numbers})"
    if factor_text and factor != 1:
        letters, numbers = f"{factor_text} x {letters}", f"{factor:.4g} x {numbers}"
    formula = f"{letters} = {numbers}"
    if numbers != gb(value):
        formula += f" = {gb(value)}"
    return Ideal(value, name, binding.link, f"{formula} GB/s: {why}")


def endpoint(row: Collective, fab: Fabric) -> Ideal | None:
    """The bound of all algorithms that reduce at the endpoints, with each byte entering or leaving
    a host as few times as possible.

    For all_reduce, all_gather and reduce_scatter min(I (N-1)Q/(N(Q-1)), B (N-1)/(N-Q)), which the
    AIBooster PyTorch benchmark calls ideal; the minimum of B and I for broadcast and reduce; the
    point-to-point bound for the others, None if it cannot run.
    """
    if row.name not in ("all_reduce", "all_gather", "reduce_scatter"):
        plain = bounds(row, fab, Features())
        return msgspec.structs.replace(plain[0], algorithm=ENDPOINT) if plain else None
    n, q = fab.ranks, fab.hosts
    if q == 1:
        why = "each GPU moves the data over its own links once"
        return _ideal(ENDPOINT, 1.0, "", _gpu(fab), why)
    terms = _nic(fab, (n - 1) * q / (n * (q - 1)), "I (N-1)Q/(N(Q-1))")
    if n > q:
        terms += _gpu(fab, (n - 1) / (n - q), "B (N-1)/(N-Q)")
    why = (
        "each byte enters or leaves a host the fewest times possible without reduction in the"
        " network"
    )
    return _ideal(ENDPOINT, 1.0, "", terms, why)


def parse_ideal(text: str) -> Ideal:
    """The Ideal from a rate such as `450GB/s`; UsageError for other text."""
    return Ideal(parse_rate(text, "--ideal"), GIVEN_LABEL, "", f"--ideal {text}")
