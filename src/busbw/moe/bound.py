"""The least time of an exchange over given links, without latency and protocol overhead.

Letters in formulas: X are the bytes of the busiest rank to or from the other ranks of its host, Y
those of the busiest host to or from the other hosts, and Z those of the busiest GPU to or from
other hosts, or of the GPUs that share NICs. B is a GPU's link to its peers, I all NICs of a host, R
the NICs next to a GPU, each in one direction. Both kinds of links work at the same time.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

from busbw.core.alltoallv import traffic
from busbw.model.fabric import Fabric
from busbw.model.own_nics import LeastTime, OwnNics, least_time

Matrix = Sequence[Sequence[int]]


def bound(matrix: Matrix, hosts: Sequence[str], fabric: Fabric) -> LeastTime | None:
    """The bound of the bytes from each rank to each; None if no known link carries any.

    `hosts` has the host of each rank. It holds for every exchange between ranks: those that pass
    rows on within a host can use all its NICs.
    """
    between = _most(
        (hosts[sender], hosts[receiver], size)
        for sender, receiver, size in _flows(matrix)
        if hosts[sender] != hosts[receiver]
    )
    of_nics = least_time("Y/I", between, fabric.nics, fabric.nic_link)
    return _longer(_within(matrix, hosts, fabric), of_nics)


def own_nic_bound(matrix: Matrix, hosts: Sequence[str], own: OwnNics) -> LeastTime | None:
    """The bound if a rank sends to other hosts, and receives from them, over the NICs next to its
    GPU alone.
    """
    moved = traffic(matrix, "", hosts)
    of_nics = own.least_of(moved) if moved else None
    return _longer(_within(matrix, hosts, own.fabric), of_nics)


def relayed_bound(matrix: Matrix, to_hosts: Matrix, own: OwnNics) -> LeastTime | None:
    """The bound if a row crosses to another host once, and is passed on there over the links
    between GPUs, as kernels such as those of DeepEP do.

    `to_hosts` has the bytes from each rank to each host. A row leaves over the sender's own NICs
    and arrives at the rank with the number of its sender within the host (rail), which passes it on
    to the ranks of its experts.
    """
    per_host = own.fabric.per_host
    between = _most(
        (sender // own.size, (host * per_host + sender % per_host) // own.size, size)
        for sender, host, size in _flows(to_hosts)
        if host != sender // per_host
    )
    passed_on = (
        (receiver // per_host * per_host + sender % per_host, receiver, size)
        for sender, receiver, size in _flows(matrix)
    )
    within = _most(flow for flow in passed_on if flow[0] != flow[1])
    of_gpu = least_time("X/B", within, own.fabric.gpu, own.fabric.gpu_link)
    return _longer(of_gpu, own.least(between))


def _within(matrix: Matrix, hosts: Sequence[str], fabric: Fabric) -> LeastTime | None:
    """The term of the busiest rank within its host."""
    within = _most(
        (sender, receiver, size)
        for sender, receiver, size in _flows(matrix)
        if hosts[sender] == hosts[receiver] and sender != receiver
    )
    return least_time("X/B", within, fabric.gpu, fabric.gpu_link)


def _flows(matrix: Matrix) -> Iterator[tuple[int, int, int]]:
    """Sender, receiver and bytes."""
    for sender, row in enumerate(matrix):
        for receiver, size in enumerate(row):
            yield sender, receiver, size


def _most(flows: Iterable[tuple[Hashable, Hashable, int]]) -> int:
    """The bytes that the busiest end of flows sends, or receives."""
    sent: dict[Hashable, int] = defaultdict(int)
    received: dict[Hashable, int] = defaultdict(int)
    for sender, receiver, size in flows:
        sent[sender] += size
        received[receiver] += size
    return max((*sent.values(), *received.values()), default=0)


def _longer(*terms: LeastTime | None) -> LeastTime | None:
    """The term that takes longer, of those whose link is known and carries any."""
    known = [term for term in terms if term is not None]
    return max(known, key=lambda term: term.time_s, default=None)
