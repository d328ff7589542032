"""Chakra's execution traces (.et), one file a rank: a message of metadata, then one for each node,
each after its length.

Schemas 0.0.4 and 1.0: nodes COMM_SEND (5), COMM_RECV (6) and COMM_COLL (7) with attributes
`comm_type`, `comm_size`, `pg_name`, ... Source: mlcommons/chakra, et_def/et_def.proto and
schema/protobuf/et_def.proto. `comm_size` is the input of one rank, in bytes.

The first part reads the wire format of protocol buffers, as far as streams of messages need it.
Source: protobuf.dev/programming-guides/encoding.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from busbw.pattern.collector import Collector
from busbw.pattern.merge import ObservedCall
from busbw.pattern.readers import json_recovery
from busbw.pattern.source import PatternSource

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Value = int | bytes
_SIZES = {FIXED64: 8, FIXED32: 4}
LACKS = "Chakra states bytes alone: element types, operators and roots are unknown"
UNSIZED = (
    "one trace that does not say how many ranks its groups have: an all_gather has the bytes of one"
    " rank's part"
)
_SEND, _RECV, _COLL = 5, 6, 7
# CollectiveCommType, in its order
_COLLECTIVES = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "alltoall",
    "reduce_scatter",
    "reduce_scatter",
    "",
)
_TIMES_RANKS = ("all_gather", "gather")
# Fields of AttributeProto: scalars of integer type, lists of them, text.
_INTEGERS, _LISTS, _TEXT = (7, 9, 11, 13, 19, 21, 23, 25, 27), (8, 10, 12, 14), 29
_SIGNED = (15, 17)  # zigzag


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends; ValueError if it has no end."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise ValueError("a number without its end")


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field of a message; ValueError if it is broken."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        size = _SIZES.get(kind)
        if kind == BYTES:
            size, at = varint(data, at)
        if size is None or number == 0 or at + size > len(data):
            raise ValueError(f"field {number} of wire type {kind} is broken")
        yield number, kind, data[at : at + size]
        at += size


def signed(value: int) -> int:
    """An int32 or int64 from its varint."""
    return value - (1 << 64) if value >> 63 else value


def packed(data: bytes) -> list[int]:
    """The varints of a packed list."""
    values = []
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(signed(value))
    return values


def integer(kind: int, value: Value) -> int | None:
    """The integer in a scalar field of integer type; None for a field of another type."""
    if isinstance(value, int):
        return signed(value)
    if kind not in _SIZES:
        return None
    return int(struct.unpack("<q" if kind == FIXED64 else "<i", value)[0])


@dataclass(slots=True)
class ChakraNode:
    """The parts of a node that are read.

    `kind` is its type in the schema. The attributes have the values of protobuf or JSON.
    """

    name: str = ""
    kind: int = 0
    start_us: int = 0
    duration_us: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)


def recognizes(head: bytes) -> bool:
    """Whether the bytes begin with metadata and the start of a node."""
    try:
        size, at = varint(head, 0)
        if any(number > 2 or kind != BYTES for number, kind, _ in fields(head[at : at + size])):
            return False
        node, at = varint(head, at + size)
        numbers = [number for number, _, _ in fields(head[at : at + node])]
    except ValueError:
        return False
    return (
        node > 2
        and bool(numbers)
        and numbers == sorted(numbers)
        and numbers[-1] <= 11
        and numbers[0] <= 2 <= max(numbers[:2])
    )


def read(source: PatternSource, collector: Collector) -> None:
    """Add the calls of one rank, whose number the file's name ends in."""
    data = source.read_all(collector)
    rank = source.rank if source.rank is not None else source.number
    collector.add_process(rank, rank)
    collector.header.world = max(collector.header.world, source.files)
    for number, message in enumerate(_messages(source, collector, data)):
        if number == 0:
            continue  # metadata
        try:
            node = _node(message)
            if node.kind in (_SEND, _RECV, _COLL):
                add(source, collector, rank, node)
        except json_recovery.UNEXPECTED as error:
            collector.add_problem(f"{source.name}: node {number}: {error}")
    note_what_is_missing(collector)


def note_what_is_missing(collector: Collector) -> None:
    """Note what the format does not state, and whether groups are of an unknown size."""
    collector.add_note(LACKS)
    if not all(group.ranks for group in collector.groups.values()):
        collector.add_note(UNSIZED)


def _messages(source: PatternSource, collector: Collector, data: bytes) -> Iterator[bytes]:
    at = number = 0
    while at < len(data):
        try:
            size, start = varint(data, at)
            if start + size > len(data):
                raise ValueError(f"{size} bytes announced, {len(data) - start} there")
        except ValueError as error:
            collector.add_problem(f"{source.name}: message {number} at byte {at}: {error}")
            return
        yield data[start : start + size]
        at, number = start + size, number + 1


def _node(message: bytes) -> ChakraNode:
    node = ChakraNode()
    for number, kind, value in fields(message):
        if isinstance(value, bytes):
            if number == 2:
                node.name = value.decode(errors="replace")
            elif number == 10:
                name, attribute = _attribute(value)
                node.attributes[name] = attribute
        elif kind == VARINT and number in (3, 6, 7):
            setattr(node, {3: "kind", 6: "start_us", 7: "duration_us"}[number], value)
    return node


def _attribute(message: bytes) -> tuple[str, Any]:
    """The name and value of an attribute."""
    name = ""
    attribute: Any = None
    for number, kind, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            name = value.decode(errors="replace")
        elif number in _INTEGERS:
            attribute = integer(kind, value)
        elif number in _SIGNED and isinstance(value, int):
            attribute = value >> 1 ^ -(value & 1)
        elif isinstance(value, bytes) and number == _TEXT:
            attribute = value.decode(errors="replace")
        elif isinstance(value, bytes) and number in _LISTS:
            attribute = []
            for inner, _, part in fields(value):
                if inner == 1:
                    attribute += packed(part) if isinstance(part, bytes) else [signed(part)]
    return name, attribute


def add(source: PatternSource, collector: Collector, rank: int, node: ChakraNode) -> None:
    """Add the call of a node of communication.

    Raises one of json_recovery.UNEXPECTED if its attributes are not as the schema has them.
    """
    attributes = node.attributes
    if "comm_size" not in attributes:
        raise ValueError("it has no comm_size")
    size = attributes["comm_size"]
    members = attributes.get("ranks") or []
    ranks = int(attributes.get("group_size") or len(members))
    if not ranks and source.files > 1:
        ranks = source.files
    name = str(attributes.get("pg_name") or "")
    comm = (name, *members)
    rank_in_comm = members.index(rank) if rank in members else None
    collector.add_comm(comm, ranks, name, members=members, process=rank, rank=rank_in_comm)
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"comm_size is {size!r}")
    if node.kind == _COLL:
        function = _COLLECTIVES[attributes["comm_type"]]
        if not function:
            collector.count_omitted(rank, "barrier")
            return
        if function in _TIMES_RANKS:
            size *= ranks or 1
        call = ObservedCall(comm, function, size)
    else:
        function, peer = ("send", "comm_dst") if node.kind == _SEND else ("recv", "comm_src")
        collector.add_comm(comm, process=rank, rank=rank if not members else None)
        call = ObservedCall(comm, function, size, peer=attributes.get(peer))
    if node.start_us:
        call.at_us = float(node.start_us)
    if node.duration_us:
        clock = "cpu_us" if attributes.get("is_cpu_op") else "gpu_us"
        setattr(call, clock, float(node.duration_us))
    collector.add_call(rank, call)
