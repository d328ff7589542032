"""`horovod.common.util`, as far as scripts import it."""

import itertools
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def split_list(items: Sequence[Item], parts: int) -> list[Sequence[Item]]:
    """Split into `parts` runs whose lengths differ by one at most, the longer ones first."""
    base, extra = divmod(len(items), parts)
    ends = [number * base + min(number, extra) for number in range(parts + 1)]
    return [items[begin:end] for begin, end in itertools.pairwise(ends)]
