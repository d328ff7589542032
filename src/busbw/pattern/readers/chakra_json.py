"""Chakra's execution traces as JSON: what chakra_jsonizer writes (an object for each message), and
the feeder's `workload_graph`.

Source: mlcommons/chakra, src/jsonizer/jsonizer.py (protobuf's JSON: camelCase, 64-bit numbers as
text) and src/feeder/json_node.cpp.
"""

import re
from typing import Any

from busbw.pattern.collector import Collector
from busbw.pattern.readers import chakra, json_recovery
from busbw.pattern.source import PatternSource

_TYPES = {"COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6, "COMM_COLL_NODE": 7}
_GRAPH = re.compile(rb'\s*\{\s*"workload_graph"\s*:')
_MESSAGE = re.compile(rb'\s*(?:\{\s*\}\s*)?\{\s*"(?:version|id|name)"\s*:\s*"')
_INTEGER = re.compile(r"s?(?:u?int|fixed)(?:32|64)Val$")


def recognizes(head: bytes) -> bool:
    """Whether the bytes begin as either of the two formats."""
    if _GRAPH.match(head):
        return True
    return _MESSAGE.match(head) is not None and b'"attr"' in head and b"_NODE" in head


def read(source: PatternSource, collector: Collector) -> None:
    """Add the calls of one rank, whose number the file's name ends in."""
    data = source.read_all(collector)
    rank = source.rank if source.rank is not None else source.number
    collector.add_process(rank, rank)
    collector.header.world = max(collector.header.world, source.files)
    if _GRAPH.match(data):
        nodes = json_recovery.objects(data, "workload_graph")
    else:
        nodes = json_recovery.documents(
            data, lambda at: collector.add_problem(f"{source.name}: {at}")
        )
    for number, fields in enumerate(nodes):
        try:
            node = _node(fields)
            if node.kind in _TYPES.values():
                chakra.add(source, collector, rank, node)
        except json_recovery.UNEXPECTED as error:
            collector.add_problem(f"{source.name}: node {number}: {error}")
    chakra.note_what_is_missing(collector)


def _node(fields: dict[str, Any]) -> chakra.ChakraNode:
    if "NodeType" in fields:  # the feeder's
        times = {"start_us": 0, "duration_us": int(fields.get("runtime", 0))}
        return chakra.ChakraNode(
            str(fields.get("Name", "")), int(fields["NodeType"]), attributes=fields, **times
        )
    attributes = {
        str(attribute["name"]): _value(attribute)
        for attribute in fields.get("attr", [])
        if "name" in attribute
    }
    kind = fields.get("type", 0)
    return chakra.ChakraNode(
        str(fields.get("name", "")),
        _TYPES.get(kind, 0) if isinstance(kind, str) else int(kind),
        int(fields.get("startTimeMicros", 0)),
        int(fields.get("durationMicros", 0)),
        attributes,
    )


def _value(attribute: dict[str, Any]) -> Any:
    """The value under `int64Val`, `stringVal`, `uint32List` etc.; protobuf leaves out 0."""
    key = next((name for name in attribute if name.endswith(("Val", "List"))), "")
    if not key:
        return 0
    value = attribute[key]
    if key.endswith("List"):
        numbers = value.get("values", []) if isinstance(value, dict) else []
        return [int(number) for number in numbers]
    return int(value) if _INTEGER.match(key) else value
