"""The sizes of PyTorch's operators of communication in a trace: `Input Dims`, which
`record_shapes=True` adds.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.pattern import merge
from busbw.pattern.readers import json_recovery

# Only an operator of communication has the sizes of the kernel: another one that launched it may
# have any inputs.
_COMMUNICATES = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|symm_mem|dispatch|combine", re.IGNORECASE
)
CATEGORY = "cpu_op"
_CPP_TYPES = {
    "int": "int32",
    "long int": "int64",
    "long": "int64",
    "unsigned char": "uint8",
    "signed char": "int8",
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}


class _OperatorEvent(Protocol):
    name: str
    cat: str
    args: msgspec.Raw


class _Operator(msgspec.Struct, rename={"number": "External id", "dims": "Input Dims"}):
    number: int = -1
    dims: list[Any] = []
    types: list[Any] = msgspec.field(default_factory=list, name="Input type")


def communicates(name: str) -> bool:
    """Whether an operator with this name may have the size of a kernel of communication."""
    return _COMMUNICATES.search(name) is not None


def sizes(events: Iterable[_OperatorEvent], numbers: set[int]) -> dict[int, tuple[int, str | None]]:
    """The bytes and type of the largest tensor of these operators, as algbw counts them."""
    found = {}
    for event in events if numbers else ():
        if event.cat != CATEGORY or not communicates(event.name):
            continue
        try:
            operator = msgspec.json.decode(event.args, type=_Operator)
        except json_recovery.BROKEN:
            continue
        tensors = [_tensor(*pair) for pair in zip(operator.dims, operator.types, strict=False)]
        largest = max(tensors, default=(0, None), key=lambda tensor: tensor[0])
        if operator.number in numbers and largest[0]:
            found[operator.number] = largest
    return found


def _tensor(dims: Any, cpp_type: Any) -> tuple[int, str | None]:
    """The bytes and type of a tensor; (0, None) for what is none."""
    if not isinstance(dims, list) or not dims or not isinstance(cpp_type, str):
        return 0, None
    if not all(type(size) is int and 0 <= size < 1 << 40 for size in dims):
        return 0, None
    name = cpp_type.removeprefix("c10::").lower()
    dtype, itemsize = merge.element(_CPP_TYPES.get(name, name))
    size = math.prod(dims) * itemsize
    return (size, dtype if dtype in DTYPES else None) if size < 1 << 50 else (0, None)
