"""Each collective as NCCL calls of one rank, and thunks around NCCL calls: groups and graphs.

The calls of a rank are groups of launches. Groups run in order; the launches of a group run at
once.
"""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from busbw.core.dtypes import DType, encode
from busbw.core.errors import NoMeasurement
from busbw.engines.base import CollectiveCall, Launch
from busbw.engines.cuda_runtime import CudaGraph, Stream
from busbw.engines.nccl_comms import COLLECTIVE_ALLTOALL_SINCE, library

HOST_IMMEDIATE = 1  # ncclScalarHostImmediate: the scalar is read before the call returns


class OneGroup:
    """A thunk that runs launches in one NCCL group."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        nccl = library()
        self.launches = tuple(launches)
        self._start, self._end, self._error = nccl.group_start, nccl.group_end, nccl.NCCLError

    def __call__(self) -> None:
        self._start()
        try:
            for launch in self.launches:
                launch()
        except BaseException:
            with suppress(self._error):  # an open group would keep even an abort waiting
                self._end()
            raise
        self._end()


class Premultiplied:
    """A thunk that runs a reduction with an operator of its own, which it creates and destroys.

    `reduction` takes the operator. `scalar` is its factor in the memory of the host.
    """

    def __init__(self, caller: "Rank", dtype: DType, reduction: Callable[[int], Launch]) -> None:
        self.scalar = ctypes.create_string_buffer(premultiplier(dtype, caller.rank), dtype.itemsize)
        self.comm, self.dtype, self.reduction = caller.comm, dtype.nccl, reduction
        self._create = caller.nccl.red_op_create_pre_mul_sum
        self._destroy = caller.nccl.red_op_destroy
        self._address = ctypes.addressof(self.scalar)

    def __call__(self) -> None:
        """Create the operator, reduce, and destroy it."""
        operator = self._create(self._address, self.dtype, HOST_IMMEDIATE, self.comm)
        self.reduction(operator)()
        self._destroy(operator, self.comm)


class GraphReplay:
    """One graph per local GPU, freed with the last reference to it."""

    def __init__(self, graphs: Sequence[CudaGraph]) -> None:
        self._graphs = tuple(graphs)

    def __call__(self) -> None:
        for graph in self._graphs:
            graph.launch()

    def close(self) -> None:
        for graph in self._graphs:
            graph.close()

    def __del__(self) -> None:
        """Free the graphs with the last reference."""
        with suppress(Exception):  # at interpreter exit the driver may be gone before it
            self.close()


Groups = list[list[Launch]]


@dataclass(frozen=True, slots=True)
class Rank:
    """What a rank calls NCCL with."""

    nccl: Any
    version: int
    comm: Any
    stream: Stream
    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class Message:
    """One call of one rank with its addresses."""

    caller: Rank
    call: CollectiveCall
    send: int
    recv: int

    @property
    def count(self) -> int:
        """NCCL's count argument."""
        return self.call.layout.count

    @property
    def part_bytes(self) -> int:
        """Bytes of `count` elements."""
        return self.count * self.call.dtype.itemsize

    def collective(self, function: Callable[..., object], *arguments: int) -> Groups:
        """One NCCL call over both buffers.

        `arguments` come between the data type and the communicator.
        """
        before = (self.send, self.recv, self.count, self.call.dtype.nccl)
        after = (*arguments, self.caller.comm, self.caller.stream.handle)
        return [[partial(function, *before, *after)]]

    def reduction(self, function: Callable[..., object], *arguments: int) -> Groups:
        """As `collective`, with the operator; mulsum creates its own for the time of the call."""
        op = self.call.op
        if op is None:
            raise NoMeasurement(
                f"{self.call.collective.name} reduces and was given no operator", "name one with -o"
            )
        if op.nccl is not None:
            return self.collective(function, op.nccl, *arguments)
        dtype = self.call.dtype
        before = (self.send, self.recv, self.count, dtype.nccl)
        after = (*arguments, self.caller.comm, self.caller.stream.handle)

        def reduction(operator: int) -> Launch:
            return partial(function, *before, operator, *after)

        return [[Premultiplied(self.caller, dtype, reduction)]]

    def send_to(self, peer: int, count: int, offset: int, *, source: int | None = None) -> Launch:
        """Send `count` elements to `peer`, from `offset` bytes into the send buffer or `source`."""
        address = (self.send if source is None else source) + offset
        after = (peer, self.caller.comm, self.caller.stream.handle)
        return partial(self.caller.nccl.send, address, count, self.call.dtype.nccl, *after)

    def receive_from(self, peer: int, count: int, offset: int) -> Launch:
        """Receive `count` elements from `peer` at `offset` bytes of the receive buffer."""
        address = self.recv + offset
        after = (peer, self.caller.comm, self.caller.stream.handle)
        return partial(self.caller.nccl.recv, address, count, self.call.dtype.nccl, *after)


def premultiplier(dtype: DType, rank: int) -> bytes:
    """mulsum's scalar: 1 on even ranks, 2 on odd."""
    value = 1 + rank % 2
    bits = encode(value, 0, dtype) if dtype.is_float else value
    return bits.to_bytes(dtype.itemsize, "little")


def _alltoall(m: Message) -> Groups:
    if m.caller.version >= COLLECTIVE_ALLTOALL_SINCE:
        return m.collective(m.caller.nccl.allto_all)
    launches: list[Launch] = []
    for peer in range(m.caller.size):
        offset = peer * m.part_bytes
        launches += [m.send_to(peer, m.count, offset), m.receive_from(peer, m.count, offset)]
    return [launches] if m.count else []


def _gather(m: Message) -> Groups:
    if m.caller.version >= COLLECTIVE_ALLTOALL_SINCE:
        return m.collective(m.caller.nccl.gather, m.call.root)
    launches = [m.send_to(m.call.root, m.count, 0)]
    if m.caller.rank == m.call.root:
        launches += [m.receive_from(r, m.count, r * m.part_bytes) for r in range(m.caller.size)]
    return [launches] if m.count else []


def _scatter(m: Message) -> Groups:
    if m.caller.version >= COLLECTIVE_ALLTOALL_SINCE:
        return m.collective(m.caller.nccl.scatter, m.call.root)
    launches = [m.receive_from(m.call.root, m.count, 0)]
    if m.caller.rank == m.call.root:
        launches += [m.send_to(r, m.count, r * m.part_bytes) for r in range(m.caller.size)]
    return [launches] if m.count else []


def _alltoallv(m: Message) -> Groups:
    matrix, rank, size = m.call.layout.matrix, m.caller.rank, m.call.dtype.itemsize
    launches, sent, received = [], 0, 0
    for peer in range(m.caller.size):
        to_peer, from_peer = matrix[rank][peer], matrix[peer][rank]
        # A pair that exchanges nothing is left out, as nccl-tests does.
        if to_peer:
            launches.append(m.send_to(peer, to_peer, sent * size))
        if from_peer:
            launches.append(m.receive_from(peer, from_peer, received * size))
        sent, received = sent + to_peer, received + from_peer
    return [launches]


def _sendrecv(m: Message) -> Groups:
    rank, size = m.caller.rank, m.caller.size
    return [
        [m.send_to((rank + 1) % size, m.count, 0), m.receive_from((rank - 1) % size, m.count, 0)]
    ]


def _hypercube(m: Message) -> Groups:
    """After step k each rank holds the parts of the 2^k ranks that share its higher bits."""
    rank, part = m.caller.rank, m.part_bytes
    if not part:
        return []
    own_part = m.recv + rank * part
    groups: Groups = []
    if own_part != m.send:
        groups.append([m.caller.stream.copying(own_part, m.send, part)])
    step = 1
    while step < m.caller.size:
        held, peer = rank & -step, rank ^ step
        send = m.send_to(peer, step * m.count, held * part, source=m.recv)
        receive = m.receive_from(peer, step * m.count, (held ^ step) * part)
        groups.append([send, receive])
        step *= 2
    return groups


CALLS: dict[str, Callable[[Message], Groups]] = {
    "all_reduce": lambda m: m.reduction(m.caller.nccl.all_reduce),
    "all_gather": lambda m: m.collective(m.caller.nccl.all_gather),
    "reduce_scatter": lambda m: m.reduction(m.caller.nccl.reduce_scatter),
    "broadcast": lambda m: m.collective(m.caller.nccl.broadcast, m.call.root),
    "reduce": lambda m: m.reduction(m.caller.nccl.reduce, m.call.root),
    "alltoall": _alltoall,
    "alltoallv": _alltoallv,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": _sendrecv,
    "hypercube": _hypercube,
}
