"""Which element types and operators keep NCCL from NVLS, and when it takes a tree for fp8. NVLink's
switch can reduce only some of them; for others NCCL takes another algorithm. all_gather reduces
nothing, so any type will do. Sums of fp8 lose precision along a ring of many ranks, so NCCL takes a
tree.

Source: src/include/device.h, ncclNvlsSupported, of 2.21.5 to 2.30.7, which agree. NCCL computes avg
and mulsum by operators of its own, which NVLS does not have. Rings of fp8: src/enqueue.cc of 2.24.3
to 2.30.7, which agree; earlier releases have no fp8.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from busbw.core.collectives import BY_NAME
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.redops import BY_NAME as REDOPS
from busbw.model.nccl.choice import AllowedAlgorithms, ExpectedChoice
from busbw.model.nccl.constants import MODELLED, NVLS, NVLS_TREE, RING

_EXACT = ("int32", "uint32", "int64", "uint64", "half", "bfloat16")
TYPES_OF = {"sum": (*_EXACT, "float", "double"), "min": _EXACT, "max": _EXACT}
_OF_SWITCH = (NVLS, NVLS_TREE)
_FP8 = ("f8e4m3", "f8e5m2")
_MOST_RANKS_OF_FP8_RING = 8


@cache
def reduces(collective: str, dtype: str, op: str) -> bool:
    """Whether NVLS can reduce this element type with this operator, in any spelling."""
    if not BY_NAME[collective].reduces:
        return True
    type_row, op_row = DTYPES.get(dtype.lower()), REDOPS.get(op.lower())
    if type_row is None or op_row is None:
        return False
    return type_row.name in TYPES_OF.get(op_row.name, ())


def allowed_for(may: AllowedAlgorithms, collective: str, dtype: str, op: str) -> AllowedAlgorithms:
    """What is left of `may` on this element type; all other algorithms if nothing is."""
    if reduces(collective, dtype, op):
        return may
    left = tuple(name for name in may.algorithms if name not in _OF_SWITCH)
    others = tuple(name for name in MODELLED if name not in _OF_SWITCH)
    return replace(may, algorithms=left or others)


def by_precision(
    possible: Sequence[ExpectedChoice], dtype: str, ranks: int
) -> list[ExpectedChoice]:
    """The choices in NCCL's order of preference: rings of fp8 over many ranks are the last."""
    last = RING if dtype.lower() in _FP8 and ranks > _MOST_RANKS_OF_FP8_RING else ""
    return sorted(possible, key=lambda choice: choice.algorithm == last)
