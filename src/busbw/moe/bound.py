"""The least time of an exchange over given links, without latency and protocol overhead.

Letters in formulas: X are the bytes of the busiest rank to or from the other ranks of its host, Y
those of the busiest host to or from the other hosts. B is a GPU's link to its peers, I all NICs of
a host, each in one direction. Both kinds of links work at the same time.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.model.fabric import Fabric, gb


@dataclass(frozen=True, slots=True)
class LeastTime:
    """The least time in seconds, and the formula with its numbers and the link that binds."""

    time_s: float
    text: str


def bound(
    matrix: Sequence[Sequence[int]], hosts: Sequence[str], fabric: Fabric
) -> LeastTime | None:
    """The bound of the bytes from each rank to each; None if no known link carries any.

    `hosts` has the host of each rank.
    """
    return _larger(*_busiest(matrix, hosts), fabric)


def relayed_bound(
    matrix: Sequence[Sequence[int]],
    to_hosts: Sequence[Sequence[int]],
    per_host: int,
    fabric: Fabric,
) -> LeastTime | None:
    """The bound if a row crosses to another host once, and is passed on there over the links
    between GPUs, as kernels such as those of DeepEP do.

    `to_hosts` has the bytes from each rank to each host. A row arrives at the rank with the number
    of its sender within the host (rail), which passes it on to the ranks of its experts.
    """
    out_of_host: dict[int, int] = defaultdict(int)
    into_host: dict[int, int] = defaultdict(int)
    for sender, row in enumerate(to_hosts):
        for host, size in enumerate(row):
            if host != sender // per_host:
                out_of_host[sender // per_host] += size
                into_host[host] += size
    out_of_rank: dict[int, int] = defaultdict(int)
    into_rank: dict[int, int] = defaultdict(int)
    for sender, row in enumerate(matrix):
        for receiver, size in enumerate(row):
            passing_on = receiver // per_host * per_host + sender % per_host
            if passing_on != receiver:
                out_of_rank[passing_on] += size
                into_rank[receiver] += size
    within = max((*out_of_rank.values(), *into_rank.values()), default=0)
    between = max((*out_of_host.values(), *into_host.values()), default=0)
    return _larger(within, between, fabric)


def _larger(within: int, between: int, fabric: Fabric) -> LeastTime | None:
    """The term that takes longer, of those whose link is known and carries any."""
    terms = [
        _least_time("X/B", within, fabric.gpu, fabric.gpu_link),
        _least_time("Y/I", between, fabric.nics, fabric.nic_link),
    ]
    known = [term for term in terms if term is not None]
    return max(known, key=lambda term: term.time_s, default=None)


def _least_time(letters: str, size_bytes: int, rate: float | None, link: str) -> LeastTime | None:
    if not rate or not size_bytes:
        return None
    text = f"{letters} = {size_bytes / 1e6:.4g} MB / {gb(rate)} GB/s: {link}"
    return LeastTime(size_bytes / rate, text)


def _busiest(matrix: Sequence[Sequence[int]], hosts: Sequence[str]) -> tuple[int, int]:
    """The bytes of the busiest rank within its host, and of the busiest host to other hosts."""
    out_of_rank: dict[int, int] = defaultdict(int)
    into_rank: dict[int, int] = defaultdict(int)
    out_of_host: dict[str, int] = defaultdict(int)
    into_host: dict[str, int] = defaultdict(int)
    for sender, row in enumerate(matrix):
        for receiver, size in enumerate(row):
            if hosts[sender] != hosts[receiver]:
                out_of_host[hosts[sender]] += size
                into_host[hosts[receiver]] += size
            elif sender != receiver:
                out_of_rank[sender] += size
                into_rank[receiver] += size
    within = max((*out_of_rank.values(), *into_rank.values()), default=0)
    between = max((*out_of_host.values(), *into_host.values()), default=0)
    return within, between
