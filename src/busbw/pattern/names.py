"""The names of functions and element types in NCCL, PyTorch, torchcomms, Chakra and SimAI, and
what they are called here.
"""

from busbw.core.collectives import COLLECTIVES
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.dtypes import DTYPES as ROWS
from busbw.core.pattern import ALGORITHMS, PROTOCOLS, RECV, SEND
from busbw.core.redops import REDOPS

# PyTorch's c10d and torchcomms name the same operation by how its buffers are passed.
_VARIANTS = {
    "all_reduce": ("allreduce_coalesced",),
    "all_gather": (
        "_allgather_base",
        "allgather_into_tensor",
        "allgather_into_tensor_coalesced",
        "allgather_coalesced",
        "all_gather_single",
    ),
    "reduce_scatter": (
        "_reduce_scatter_base",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
        "reduce_scatter_single",
        "reduce_scatter_block",
    ),
    "broadcast": ("_broadcast_oop",),
    "reduce": ("_reduce_oop",),
    "alltoall": ("alltoall_base", "all_to_all_single"),
    "alltoallv": ("all_to_allv", "all_to_all_v_single"),
    "gather": ("gather_single",),
    SEND: ("send", "isend"),
    RECV: ("recv", "irecv", "recv_any_source"),
}
# What moves no data of the application: counted, but no row.
CONTROL = frozenset(
    {
        "barrier",
        "allreducebarrier",
        "monitoredbarrier",
        "wait",
        "coalesced",
        "startcoalescing",
        "endcoalescing",
        "init",
        "broadcastuniquencclid",
        "batchopissue",
    }
)
# Types that no row of the table has: bytes an element.
_OTHER_TYPES = {
    "bool": 1,
    "short": 2,
    "i16": 2,
    "int16": 2,
    "complexhalf": 4,
    "complexfloat": 8,
    "complexdouble": 16,
    "other": 0,
}
_SHORT_TYPES = {
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "i64": "int64",
    "float8_e4m3fnuz": "f8e4m3",
    "float8_e5m2fnuz": "f8e5m2",
    "fp8e4m3": "f8e4m3",
    "fp8e5m2": "f8e5m2",
}


def key(name: str) -> str:
    """A name without case and separators."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


_FUNCTIONS = {
    key(name): row.name for row in COLLECTIVES for name in (row.name, row.torch_name, *row.aliases)
} | {key(name): own for own, names in _VARIANTS.items() for name in names}
_OPS = {row.nccl: row.name for row in REDOPS if row.nccl is not None}
_OP_NAMES = {key(name): row.name for row in REDOPS for name in (row.name, *row.aliases)}


def function(name: str) -> str | None:
    """The row for `AllReduce`, `_allgather_base` or `all_to_all_v_single`; None if there is
    none.
    """
    return _FUNCTIONS.get(key(name))


def element(name: str) -> tuple[str | None, int]:
    """The type and its bytes for `Float`, `bf16` or `float16`.

    The type is None, or the bytes 0, where they are unknown.
    """
    lower = name.lower()
    row = DTYPES.get(_SHORT_TYPES.get(lower, lower))
    return (row.name, row.itemsize) if row else (None, _OTHER_TYPES.get(lower, 0))


def nccl_element(number: int) -> tuple[str, int] | None:
    """The type and its bytes for a number of ncclDataType_t."""
    return (ROWS[number].name, ROWS[number].itemsize) if 0 <= number < len(ROWS) else None


def nccl_op(number: int) -> str | None:
    """The operator for a number of ncclRedOp_t; larger numbers are operators that the
    application made (mulsum).
    """
    return _OPS.get(number, "mulsum" if number > max(_OPS) else None)


def op(name: str) -> str | None:
    """The operator for `sum` or `premul_sum`; None if there is none."""
    return _OP_NAMES.get(key(name))


def algorithm(name: str) -> str | None:
    """The algorithm for NCCL's number (`1`) or name (`RING`, `NVLS_TREE`)."""
    return _listed(name, ALGORITHMS)


def protocol(name: str) -> str | None:
    """The protocol for NCCL's number (`2`) or name (`SIMPLE`)."""
    return _listed(name, PROTOCOLS)


def _listed(name: str, names: tuple[str, ...]) -> str | None:
    if name.isdecimal():
        return names[int(name)] if int(name) < len(names) else None
    return next((one for one in names if key(one) == key(name)), None)


def count_of(function: str, sent: int, received: int, ranks: int) -> int | None:
    """NCCL's count argument from the elements of both buffers of one rank; None for an
    all-to-all with unequal parts.
    """
    if function in ("all_gather", "gather", SEND):
        return sent
    if function in ("reduce_scatter", "scatter", RECV):
        return received
    if function == "alltoall":
        return sent // ranks if ranks and sent == received and sent % ranks == 0 else None
    return None if function == "alltoallv" else max(sent, received)
