"""What an alltoallv moves between its ranks, for the model: as functions of the number of hosts and
the size in bytes, with so many ranks on each host, which are numbered host by host.
"""

from collections.abc import Callable
from functools import cache

from busbw.core.alltoallv import Traffic, traffic
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.core.sweep import SweepSpec, check_spec
from busbw.measure.alltoallv import Matrices, generated_bytes

MAX_RANKS_OF_COUNTS = 4096  # a matrix of bytes for each pair of ranks
# Above, nccl-tests' own matrix differs from an even one by less than 0.4 %.
MAX_RANKS_OF_DEFAULT = 256
ANY_BYTES = 1 << 30

TrafficAt = Callable[[int, int], Traffic | None]


def of_counts(collective: str, counts: str, per_host: int) -> TrafficAt:
    """What `busbw run --counts` moves; None where no byte crosses a link. UsageError for counts
    that are malformed, or of another collective.
    """

    @cache
    def at(hosts: int, size_bytes: int) -> Traffic | None:
        ranks = hosts * per_host
        if ranks > MAX_RANKS_OF_COUNTS:
            raise UsageError(
                f"--counts {counts}: {ranks} ranks, and at most {MAX_RANKS_OF_COUNTS} are computed",
                "give fewer --nodes, or leave out --counts",
            )
        spec = SweepSpec(
            collective=collective, min_bytes=size_bytes, max_bytes=size_bytes, counts=counts
        )
        check_spec(spec, strict=True)
        matrices = Matrices(spec, ranks)
        matrix = matrices.at(size_bytes, size_bytes)
        return traffic(matrix, matrices.source, _hosts(ranks, per_host))

    return at


def of_nccl_tests(per_host: int) -> TrafficAt:
    """What nccl-tests' own matrix moves, whose shares are those of one size for all sizes; None
    where it is nearly even.
    """

    @cache
    def at(hosts: int) -> Traffic | None:
        ranks = hosts * per_host
        if ranks > MAX_RANKS_OF_DEFAULT:
            return None
        return traffic(generated_bytes(ANY_BYTES, ranks, 1.0), "", _hosts(ranks, per_host))

    return lambda hosts, size_bytes: at(hosts)


def of_result(result: Result, per_host: int) -> TrafficAt | None:
    """What a result's alltoallv moved: by the matrix that it recorded, whose shares hold for all
    sizes, else by nccl-tests' own. None for an even exchange.
    """
    if not result.spec.row.uneven:
        return None
    if result.traffic is not None:
        return lambda hosts, size_bytes: result.traffic
    return of_nccl_tests(per_host)


def _hosts(ranks: int, per_host: int) -> list[str]:
    return [str(rank // per_host) for rank in range(ranks)]
