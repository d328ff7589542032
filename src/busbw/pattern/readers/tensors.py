"""A call of PyTorch or torchcomms, from the elements and types of its tensors."""

from collections.abc import Hashable, Iterable
from typing import Any

from busbw.pattern import names
from busbw.pattern.merge import Observed

_TOTAL_RECEIVED, _TOTAL_SENT = ("all_gather", "gather"), ("reduce_scatter", "scatter")


def elements(shapes: Iterable[Iterable[int]]) -> int:
    """Elements of all tensors with these shapes."""
    total = 0
    for shape in shapes:
        product = 1
        for size in shape:
            product *= size
        total += product
    return total


def observed(
    comm: Hashable, function: str, sent: int, received: int, dtype: str, ranks: int, **fields: Any
) -> Observed:
    """The call whose buffers on this rank have so many elements.

    `dtype` is PyTorch's or torchcomms' name; `ranks` 0 is unknown.
    """
    own, itemsize = names.element(dtype)
    if function == "alltoall" and sent != received:
        function = "alltoallv"
    total = max(sent, received)
    if function in _TOTAL_RECEIVED:
        total = max(received, sent * ranks)
    elif function in _TOTAL_SENT:
        total = max(sent, received * ranks)
    return Observed(
        comm,
        function,
        total * itemsize,
        names.count_of(function, sent, received, ranks),
        own,
        **fields,
    )
