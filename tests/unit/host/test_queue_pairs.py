"""The number of queue pairs from answers as the kernel lays them out; this suite has no RDMA
device to ask.
"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.host.dcb import DONE, ERROR, HEADER, attributes, messages
from busbw.host.rdma_ports import COUNT, DEVICE, NAME, RESOURCES, SUMMARY, decode, queue_pairs
from busbw.host.source import Unavailable

INDEX, ENTRY, NESTED = 1, 16, 0x8000


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, 2, 1, 0) + body


def entry(name: bytes, count: int) -> bytes:
    return attribute(
        ENTRY | NESTED, attribute(NAME, name + b"\0") + attribute(COUNT, struct.pack("=Q", count))
    )


def device(name: bytes, **counts: int) -> bytes:
    summary = b"".join(entry(kind.encode(), count) for kind, count in counts.items())
    body = (
        attribute(INDEX, bytes(4))
        + attribute(DEVICE, name + b"\0")
        + attribute(SUMMARY | NESTED, summary)
    )
    return message(RESOURCES, body)


def test_number_of_each_device():
    part = device(b"mlx5_bond_0", pd=5, cq=30, qp=22, cm_id=1, mr=9) + device(b"mlx5_1", qp=1, cq=2)
    assert decode(part) == ({"mlx5_bond_0": 22, "mlx5_1": 1}, False)
    assert decode(message(DONE, bytes(4))) == ({}, True)
    assert decode(message(DONE, b"")) == ({}, True)
    assert decode(message(DONE, b"")[:-1]) == ({}, False)


def test_a_device_without_an_answer_is_absent():
    assert decode(device(b"mlx5_0", cq=30)) == ({}, False)


def test_an_error_gives_its_reason():
    with pytest.raises(Unavailable, match="netlink: operation not permitted"):
        decode(message(ERROR, struct.pack("=i", -1) + bytes(16)))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_to_an_end(data):
    try:
        counts, _ = decode(data)
    except Unavailable:
        return
    assert all(count >= 0 for count in counts.values())
    assert len(list(messages(data))) <= len(data) and len(list(attributes(data))) <= len(data)


def test_the_kernel_of_this_machine_answers_or_gives_a_reason():
    try:
        assert all(count >= 0 for count in queue_pairs().values())
    except Unavailable as error:
        assert str(error).startswith("queue pairs: netlink: ")
