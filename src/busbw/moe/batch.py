"""The tokens of a run: which experts they choose, and in which numbers they are sent."""

from collections.abc import Callable

from busbw.moe.draws import Array, as_array, draw
from busbw.moe.routing import (
    FILE,
    Ids,
    check_experts,
    check_shape,
    parse_routing,
    read_ids,
    tokens_of_file,
)
from busbw.moe.types import MoeSpec

GPU_TOKENS, CPU_TOKENS = (128, 4096), (128, 512)  # of --tokens, if it is not given


def batch(
    spec: MoeSpec,
    ranks: int,
    default: tuple[int, int],
    read: Callable[[str, int, int], Ids] = read_ids,
) -> tuple[Array, list[int]]:
    """The experts of all tokens of the largest number, and the numbers in ascending order.

    `default` are the first and last number if the spec has none. `read` reads a file of ids.
    UsageError if the ranks do not divide the experts, or the tokens of a file.
    """
    routing = parse_routing(spec.routing)
    check_shape(routing, spec.experts, spec.top_k)
    check_experts(spec.experts, ranks)
    first, last = spec.tokens or default
    if routing.kind != FILE:
        ids = draw(routing, spec.seed, ranks, last, spec.experts, spec.top_k)
        return ids, sizes_of(first, last)
    given = read(routing.path, spec.experts, spec.top_k)
    last = tokens_of_file(routing.path, len(given), ranks, last if spec.tokens else None)
    return as_array(given, ranks), sizes_of(first, last) if spec.tokens else [last]


def sizes_of(first: int, last: int) -> list[int]:
    """The numbers of tokens from first to last, each twice the one before; last is always one."""
    sizes = []
    while first < last:
        sizes.append(first)
        first *= 2
    return [*sizes, last]
