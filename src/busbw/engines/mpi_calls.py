"""Each collective as MPI calls, and the element types and operators that MPI itself lacks.

half, bfloat16 and fp8 travel as opaque elements and are reduced by operators written in numpy; avg
divides after a sum; mulsum multiplies before it. Out-of-place calls never change the send buffer.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI

from busbw.core.dtypes import DType
from busbw.core.redops import RedOp
from busbw.engines.base import CollectiveCall, Launch, LaunchSequence
from busbw.engines.host_probe import scalar_type

_NATIVE = {
    "int8": MPI.INT8_T,
    "uint8": MPI.UINT8_T,
    "int32": MPI.INT32_T,
    "uint32": MPI.UINT32_T,
    "int64": MPI.INT64_T,
    "uint64": MPI.UINT64_T,
    "float": MPI.FLOAT,
    "double": MPI.DOUBLE,
}
_OPS = {
    "sum": MPI.SUM,
    "prod": MPI.PROD,
    "min": MPI.MIN,
    "max": MPI.MAX,
    "avg": MPI.SUM,
    "mulsum": MPI.SUM,
}
_UFUNCS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "avg": np.add,
    "mulsum": np.add,
}
MAX_OPS = 16  # that mpi4py holds


class Types:
    """MPI datatypes and operators, made on first use and freed together.

    Operators belong to no communicator: all engines share them.
    """

    _ops: ClassVar[dict[tuple[str, str], MPI.Op]] = {}

    def __init__(self) -> None:
        self._datatypes: dict[int, MPI.Datatype] = {}

    def datatype(self, dtype: DType) -> MPI.Datatype:
        """The MPI type: a native one, or an opaque element of the same size."""
        native = _NATIVE.get(dtype.name)
        if native is not None:
            return native
        if dtype.itemsize not in self._datatypes:
            self._datatypes[dtype.itemsize] = MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()
        return self._datatypes[dtype.itemsize]

    def op(self, dtype: DType, op: RedOp) -> MPI.Op:
        """The MPI operator: a native one, or numpy's ufunc over the elements."""
        # Open MPI's sums of 8-bit integers can saturate (seen in 5.0.11); NCCL's wrap, so those are
        # computed here too.
        if dtype.name in _NATIVE and dtype.itemsize > 1:
            return _OPS[op.name]
        ufunc, scalar = _UFUNCS[op.name], scalar_type(dtype)
        key = (dtype.name, ufunc.__name__)
        if key not in self._ops:
            if len(self._ops) == MAX_OPS:
                self._free_ops()  # a sweep is done with one type before it takes the next

            def combine(inbuf: Any, inout: Any, _datatype: MPI.Datatype) -> None:
                target = np.frombuffer(inout, scalar)
                ufunc(np.frombuffer(inbuf, scalar), target, out=target)

            self._ops[key] = MPI.Op.Create(combine, commute=True)
        return self._ops[key]

    def free(self) -> None:
        for datatype in self._datatypes.values():
            datatype.Free()
        self._free_ops()

    def _free_ops(self) -> None:
        for op in self._ops.values():
            op.Free()
        self._ops.clear()


class Messages:
    """One call's buffers as mpi4py takes them, with the steps for operators that MPI lacks.

    `send` and `recv` are views of the bytes.
    """

    def __init__(
        self, comm: MPI.Intracomm, types: Types, call: CollectiveCall, send: Any, recv: Any
    ) -> None:
        self.comm, self.call = comm, call
        self.rank, self.ranks = comm.rank, comm.size
        self.count, self.root = call.layout.count, call.root
        self.datatype = types.datatype(call.dtype)
        self.op: Any = None
        if call.op and call.collective.reduces:
            self.op = types.op(call.dtype, call.op)
        self.send_bytes, self.recv_bytes = send, recv

    @property
    def is_root(self) -> bool:
        return self.rank == self.root

    def message(self, data: Any, count: int | None = None) -> list[Any]:
        """An mpi4py message over `data`, of all its elements or of `count`."""
        if count is None:
            count = len(data) // self.call.dtype.itemsize
        return [data, count, self.datatype]

    @property
    def send(self) -> list[Any]:
        """The send buffer.

        mpi4py counts one rank's part where MPI does, which is the call's count for every
        collective.
        """
        return self.message(self.send_bytes, self.count)

    @property
    def recv(self) -> list[Any]:
        """The receive buffer, counted likewise."""
        return self.message(self.recv_bytes, self.count)

    def part(self, data: Any, number: int, parts: int = 1) -> Any:
        """Bytes of `parts` parts of a buffer, from part `number`."""
        size = self.count * self.call.dtype.itemsize
        return data[number * size : (number + parts) * size]

    def reduction(
        self, run: Callable[[Any], Launch], send: Any, result: Any, receives: bool
    ) -> Launch:
        """`run(send buffer)`, with what avg and mulsum need before and after it.

        `result` is the memory of the result.
        """
        name = self.call.op.name if self.call.op else ""
        if name == "mulsum" and self.rank % 2:
            # A rank that receives nothing keeps its data even in place.
            target = send if self.call.in_place and receives else np.empty_like(send)
            scalar = scalar_type(self.call.dtype)
            return partial(_double_then, send.view(scalar), target.view(scalar), run(target))
        if name == "avg" and receives:
            values = result.view(scalar_type(self.call.dtype))
            return partial(_then_divide, run(send), values, self.ranks)
        return run(send)


def _double_then(source: Any, target: Any, launch: Launch) -> None:
    np.multiply(source, source.dtype.type(2), out=target)
    launch()


def _then_divide(launch: Launch, result: Any, ranks: int) -> None:
    launch()
    if result.dtype.kind in "iu":
        fits = ranks <= np.iinfo(result.dtype).max
        divisor = result.dtype.type(ranks) if fits else ranks
        np.floor_divide(result, divisor, out=result, casting="unsafe")
    else:
        wide = result.astype(np.float64 if result.dtype == np.float64 else np.float32)
        result[:] = (wide / wide.dtype.type(ranks)).astype(result.dtype)


def _all_reduce(m: Messages) -> Launch:
    def run(send: Any) -> Launch:
        first = MPI.IN_PLACE if m.call.in_place else m.message(send, m.count)
        return partial(m.comm.Allreduce, first, m.recv, m.op)

    return m.reduction(run, m.send_bytes, m.recv_bytes, receives=True)


def _reduce(m: Messages) -> Launch:
    def run(send: Any) -> Launch:
        if not m.is_root:
            return partial(m.comm.Reduce, m.message(send, m.count), None, m.op, m.root)
        first = MPI.IN_PLACE if m.call.in_place else m.message(send, m.count)
        return partial(m.comm.Reduce, first, m.recv, m.op, m.root)

    return m.reduction(run, m.send_bytes, m.recv_bytes, receives=m.is_root)


def _reduce_scatter(m: Messages) -> Launch:
    def run(send: Any) -> Launch:
        if m.call.in_place:
            return partial(m.comm.Reduce_scatter_block, MPI.IN_PLACE, m.send, m.op)
        return partial(m.comm.Reduce_scatter_block, m.message(send, m.count), m.recv, m.op)

    return m.reduction(run, m.send_bytes, m.recv_bytes, receives=True)


def _broadcast(m: Messages) -> Launch:
    bcast = partial(m.comm.Bcast, m.recv, m.root)
    if m.call.in_place or not m.is_root:
        return bcast
    return partial(_copy_then, m.recv_bytes, m.send_bytes, bcast)


def _copy_then(target: Any, source: Any, launch: Launch) -> None:
    np.copyto(target, source)
    launch()


def _gather(m: Messages) -> Launch:
    if not m.is_root:
        return partial(m.comm.Gather, m.send, None, m.root)
    return partial(m.comm.Gather, MPI.IN_PLACE if m.call.in_place else m.send, m.recv, m.root)


def _scatter(m: Messages) -> Launch:
    if not m.is_root:
        return partial(m.comm.Scatter, None, m.recv, m.root)
    return partial(m.comm.Scatter, m.send, MPI.IN_PLACE if m.call.in_place else m.recv, m.root)


def _alltoallv(m: Messages) -> Launch:
    matrix = m.call.layout.matrix
    sends, recvs = list(matrix[m.rank]), [row[m.rank] for row in matrix]
    return partial(
        m.comm.Alltoallv, [m.send_bytes, sends, m.datatype], [m.recv_bytes, recvs, m.datatype]
    )


def _sendrecv(m: Messages) -> Launch:
    after, before = (m.rank + 1) % m.ranks, (m.rank - 1) % m.ranks
    if m.call.in_place:
        return partial(m.comm.Sendrecv_replace, m.recv, after, 0, before, 0)
    return partial(m.comm.Sendrecv, m.send, after, 0, m.recv, before, 0)


def _hypercube(m: Messages) -> Launch:
    """Copies its own part, then exchanges all parts held so far with partner rank ^ 2^step."""
    steps: list[Launch] = []
    if not m.call.in_place:
        steps.append(partial(np.copyto, m.part(m.recv_bytes, m.rank), m.send_bytes))
    for step in range(m.ranks.bit_length() - 1):
        parts, partner = 1 << step, m.rank ^ 1 << step
        held = m.message(m.part(m.recv_bytes, m.rank >> step << step, parts))
        missing = m.message(m.part(m.recv_bytes, partner >> step << step, parts))
        steps.append(partial(m.comm.Sendrecv, held, partner, step, missing, partner, step))
    return LaunchSequence(steps)


CALLS: dict[str, Callable[[Messages], Launch]] = {
    "all_reduce": _all_reduce,
    "all_gather": lambda m: partial(
        m.comm.Allgather, MPI.IN_PLACE if m.call.in_place else m.send, m.recv
    ),
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "alltoall": lambda m: partial(
        m.comm.Alltoall, MPI.IN_PLACE if m.call.in_place else m.send, m.recv
    ),
    "alltoallv": _alltoallv,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": _sendrecv,
    "hypercube": _hypercube,
}
