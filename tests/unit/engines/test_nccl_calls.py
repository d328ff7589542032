"""Collectives made of send and receive move every element to the destination in the table of
collectives, for any number of ranks.

The calls are carried out here on byte arrays by NCCL's rules for groups, which is what an NCCL
older than 2.28 would do on GPUs.
"""

from collections import defaultdict

import pytest

from busbw.core.collectives import BY_NAME
from busbw.core.dtypes import DTYPES
from busbw.core.layouts import Layout
from busbw.core.redops import REDOPS
from busbw.engines.base import CollectiveCall
from busbw.engines.cuda_memory import placed
from busbw.engines.nccl_calls import CALLS, Message, Rank, premultiplier
from busbw.measure import alltoallv

OLD_NCCL = 22700
SIZE, RECV_AT = 4096, 2048
INT32 = DTYPES[2]
POINT_TO_POINT = ("alltoall", "alltoallv", "gather", "scatter", "sendrecv", "hypercube")


class Wire:
    """One rank's NCCL and stream over a byte array: sends and receives wait for the end of the
    group.
    """

    handle = 0

    def __init__(self) -> None:
        self.memory = bytearray(SIZE)
        self.sends, self.receives = [], []

    def send(self, address, count, dtype, peer, comm, stream):
        assert dtype == INT32.nccl and count > 0
        self.sends.append((peer, address, count * INT32.itemsize))

    def recv(self, address, count, dtype, peer, comm, stream):
        assert dtype == INT32.nccl and count > 0
        self.receives.append((peer, address, count * INT32.itemsize))

    def copying(self, target, source, size):
        def run():
            self.memory[target : target + size] = self.memory[source : source + size]

        return run


def end_group(wires: list[Wire]) -> None:
    """Pair sends and receives in order, and move all data at once, as a group does."""
    mail = defaultdict(list)
    for rank, wire in enumerate(wires):
        for peer, address, size in wire.sends:
            mail[rank, peer].append(bytes(wire.memory[address : address + size]))
    for rank, wire in enumerate(wires):
        for peer, address, size in wire.receives:
            data = mail[peer, rank].pop(0)
            assert len(data) == size, "a receive and its send differ in size"
            wire.memory[address : address + size] = data
        wire.sends.clear()
        wire.receives.clear()
    assert not any(mail.values()), "a send without a receive"


def call_of(name: str, ranks: int, *, in_place: bool) -> CollectiveCall:
    row, item = BY_NAME[name], INT32.itemsize
    matrix = (
        alltoallv.elements(alltoallv.generated_bytes(ranks * 64, ranks, 0.5), item)
        if row.uneven
        else ()
    )
    buffers = row.buffers(24 * ranks, ranks, item)
    return CollectiveCall(
        row,
        INT32,
        None,
        Layout(buffers.count, ranks, ranks - 1, matrix),
        buffers.send,
        buffers.recv,
        in_place,
    )


def test_each_collective_has_its_call() -> None:
    assert CALLS.keys() == BY_NAME.keys()


def carry_out(call: CollectiveCall, wires: list[Wire]) -> None:
    messages_by_rank = []
    for rank, wire in enumerate(wires):
        address = placed(rank, 0, RECV_AT)
        rank_of_message = Rank(wire, OLD_NCCL, None, wire, rank, len(wires))
        messages_by_rank.append(
            CALLS[call.collective.name](
                Message(rank_of_message, call, address(call, "send"), address(call, "recv"))
            )
        )
    for step in range(max(map(len, messages_by_rank))):
        for groups in messages_by_rank:
            for launch in groups[step]:
                launch()
        end_group(wires)


@pytest.mark.parametrize(
    ("name", "ranks", "in_place"),
    [
        (name, ranks, in_place)
        for name in POINT_TO_POINT
        for ranks in (1, 2, 3, 4, 7, 8)
        for in_place in (False, True)
        if not (BY_NAME[name].ranks_power_of_two and ranks & (ranks - 1))
        and (BY_NAME[name].in_place_checked or not in_place)
    ],
)
def test_every_element_arrives_at_its_destination(name, ranks, in_place):
    row, item = BY_NAME[name], INT32.itemsize
    call = call_of(name, ranks, in_place=in_place)
    wires = [Wire() for _ in range(ranks)]
    sent = {}
    for rank, wire in enumerate(wires):
        start = placed(rank, 0, RECV_AT)(call, "send")
        data = b"".join(
            (1000 * rank + index + 1).to_bytes(item, "little") for index in range(call.send)
        )
        wire.memory[start : start + len(data)] = data
        sent[rank] = data
    before = [bytes(wire.memory) for wire in wires]
    carry_out(call, wires)
    for rank, wire in enumerate(wires):
        recv = placed(rank, 0, RECV_AT)(call, "recv")
        expected_bytes = bytearray(before[rank])
        for move in row.moves(call.layout, rank):
            ((source, offset),) = move.sources
            at = recv + move.dst * item
            expected_bytes[at : at + move.length * item] = sent[source][
                offset * item : (offset + move.length) * item
            ]
        assert bytes(wire.memory) == bytes(expected_bytes)


@pytest.mark.parametrize(("in_place", "steps"), [(False, 1), (True, 0)])
def test_a_hypercube_of_one_rank_copies_only_out_of_place(in_place, steps):
    call, wire = call_of("hypercube", 1, in_place=in_place), Wire()
    address = placed(0, 0, RECV_AT)
    message = Message(
        Rank(wire, OLD_NCCL, None, wire, 0, 1), call, address(call, "send"), address(call, "recv")
    )
    assert [len(step) for step in CALLS["hypercube"](message)] == [1] * steps


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_mulsum_multiplies_by_1_on_even_and_2_on_odd_ranks(dtype):
    one_bits = {
        "half": 0x3C00,
        "float": 0x3F800000,
        "double": 0x3FF << 52,
        "bfloat16": 0x3F80,
        "f8e4m3": 0x38,
        "f8e5m2": 0x3C,
    }
    one_value = int.from_bytes(premultiplier(dtype, 4), "little")
    two_value = int.from_bytes(premultiplier(dtype, 5), "little")
    assert one_value == one_bits.get(dtype.name, 1)
    assert two_value == (one_value + (1 << (dtype.significand - 1)) if dtype.is_float else 2)


class Ops:
    """Records the calls of one reduction in order."""

    def __init__(self) -> None:
        self.log = []

    def red_op_create_pre_mul_sum(self, scalar, dtype, residence, comm):
        self.log.append(("create", dtype, residence))
        return 77

    def red_op_destroy(self, op, comm):
        self.log.append(("destroy", op))

    def reduce(self, *arguments):
        self.log.append(("reduce", arguments[2:6]))


def test_mulsum_creates_and_destroys_its_operator_per_call():
    mulsum = next(op for op in REDOPS if op.name == "mulsum")
    ops, stream = Ops(), Wire()
    call = CollectiveCall(
        BY_NAME["reduce"], INT32, mulsum, Layout(10, 2, 1), 10, 10, in_place=False
    )
    ((launch,),) = CALLS["reduce"](
        Message(Rank(ops, OLD_NCCL, None, stream, 0, 2), call, 0, RECV_AT)
    )
    launch()
    launch()
    one_call = [("create", INT32.nccl, 1), ("reduce", (10, INT32.nccl, 77, 1)), ("destroy", 77)]
    assert ops.log == one_call + one_call
