"""What a spine with less than full bandwidth costs: which traffic crosses it, and how flows collide
on the uplinks of leaf switches.

`hosts_per_leaf` (N) hosts share their leaf switches, one for each rail. Of Q hosts, the first N are
under the first leaves, and so on. A share s of what the NICs of N hosts send crosses the spine.
With oversubscription K the uplinks carry N/K NICs' rate, so the NICs have 1 / max(1, K s) of their
rate.

ECMP hashes each flow to an uplink. A NIC has c flows, so F = N c s flows of a leaf switch share its
U uplinks, each with the rate of N / (K U) NICs. With S leaf switches, the most loaded of all S U
uplinks is expected to have at most the sum over m >= 0 of min(1, S U P(Binomial(F, 1/U) > m))
flows, which is the union bound for balls in bins.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil, exp, floor, lgamma, log, log1p

from busbw.model.nccl.constants import NVLS_TREE, RING, TREE

P2P_EVEN = ("alltoall", "alltoallv")
P2P_OF_ROOT = ("gather", "scatter")
P2P_NEXT = "sendrecv"
SMALLEST_TAIL, ROUNDING = 1e-9, 1e-6


@dataclass(frozen=True, slots=True)
class Spine:
    """The network above the leaf switches."""

    oversubscription: float = 1.0  # the rate of a leaf's ports to hosts over that of its uplinks
    hosts_per_leaf: int = 0  # 0 where it is unknown: all traffic then crosses the spine
    uplinks: int = 0  # of a leaf switch, to which ECMP hashes flows; 0 leaves collisions out
    colliding: bool = False  # rates are those that the expected collisions leave; needs `uplinks`

    def share(self, collective: str, algorithm: str, hosts: int) -> float:
        """The share of the NICs' traffic that crosses the spine.

        That of an algorithm which is not modelled is 1.
        """
        if not self.hosts_per_leaf:
            return 1.0
        if hosts <= self.hosts_per_leaf:
            return 0.0
        if algorithm == RING or collective == P2P_NEXT:
            return 1 / self.hosts_per_leaf
        if algorithm in (TREE, NVLS_TREE):
            return tree_crossing(hosts, self.hosts_per_leaf)
        if collective in P2P_EVEN:
            return (hosts - self.hosts_per_leaf) / (hosts - 1)
        if collective in P2P_OF_ROOT:
            return (hosts - self.hosts_per_leaf) / (hosts - 1) / self.hosts_per_leaf
        return 1.0

    def limits(self, share: float) -> bool:
        """Whether the spine may slow down NICs of whose traffic `share` crosses it."""
        return share > 0 and (self.oversubscription > 1 or self.colliding)

    def divisor(self, share: float, flows: int, hosts: int, rails: int) -> float:
        """What the rate of the NICs is divided by where `share` of their traffic crosses.

        `flows` are those of one NIC, `rails` the NICs of a host.
        """
        even = max(1.0, self.oversubscription * share)
        if not self.colliding or not share:
            return even
        crossing = ceil(self.hosts_per_leaf * flows * share - ROUNDING)
        switches = ceil(hosts / self.hosts_per_leaf) * rails
        largest = largest_load(crossing, self.uplinks, switches)
        uplink = self.hosts_per_leaf / (self.oversubscription * self.uplinks)  # in NICs' rates
        return max(even, largest / flows / uplink)


def derived_uplinks(hosts_per_leaf: int, oversubscription: float) -> int:
    """The uplinks of a leaf switch that has one port for each host, all of one rate."""
    return max(1, round(hosts_per_leaf / oversubscription))


@cache
def largest_load(flows: int, uplinks: int, switches: int = 1) -> float:
    """An upper bound of the expected number of flows on the most loaded uplink, where `flows` of
    each switch are hashed to its `uplinks`.
    """
    if uplinks == 1 or flows == 0:
        return float(flows)
    # At least half of the distribution is at or above floor(mean), so no fewer flows are expected.
    least = floor(flows / uplinks)
    tails = _tails_above(flows, 1 / uplinks, least)
    return least + sum(min(1.0, switches * uplinks * tail) for tail in tails)


def _tails_above(flows: int, chance: float, least: int) -> list[float]:
    """P(Binomial(flows, chance) > m) for m = least, least + 1 ... until it is negligible."""
    masses: list[float] = []
    mean = flows * chance
    for count in range(least + 1, flows + 1):
        masses.append(_mass(flows, chance, count))
        if count > mean and masses[-1] < SMALLEST_TAIL / flows:
            break
    tails, tail = [], 0.0
    for mass in reversed(masses):
        tail += mass
        tails.append(tail)
    return tails[::-1]


def _mass(flows: int, chance: float, count: int) -> float:
    ways = lgamma(flows + 1) - lgamma(count + 1) - lgamma(flows - count + 1)
    return exp(ways + count * log(chance) + (flows - count) * log1p(-chance))


@cache
def tree_crossing(hosts: int, hosts_per_leaf: int) -> float:
    """The share of the NICs' traffic that crosses the spine, for NCCL's double binary tree.

    It is the number of edges that leave the group of `hosts_per_leaf` hosts with the most such
    edges, divided by the edges that the group would have if all its hosts were the busiest one.
    """
    degrees, leaving = [0] * hosts, [0] * ceil(hosts / hosts_per_leaf)
    for child, parent in _edges_of_both_trees(hosts):
        ends = child, parent
        groups = [host // hosts_per_leaf for host in ends]
        for host, group in zip(ends, groups, strict=True):
            degrees[host] += 1
            leaving[group] += groups[0] != groups[1]
    return max(leaving) / (hosts_per_leaf * max(degrees))


def _edges_of_both_trees(hosts: int) -> list[tuple[int, int]]:
    """Child and parent of each edge. NCCL's src/graph/trees.cc: ncclGetBtree, and ncclGetDtree,
    whose second tree is shifted by one host, or mirrored if their number is even.
    """
    first = [(host, _parent(host, hosts)) for host in range(1, hosts)]
    if hosts % 2:
        second = [((child + 1) % hosts, (parent + 1) % hosts) for child, parent in first]
    else:
        second = [(hosts - 1 - child, hosts - 1 - parent) for child, parent in first]
    return first + second


def _parent(host: int, hosts: int) -> int:
    bit = host & -host
    parent = (host ^ bit) | (bit << 1)
    return parent if parent < hosts else host ^ bit
