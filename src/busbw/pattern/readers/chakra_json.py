"""Chakra's execution traces as JSON: what chakra_jsonizer writes (an object for each message), and
the feeder's `workload_graph`.

Source: mlcommons/chakra, src/jsonizer/jsonizer.py (protobuf's JSON: camelCase, 64-bit numbers as
text) and src/feeder/json_node.cpp.
"""

import re
from typing import Any

from busbw.pattern.collector import Collector
from busbw.pattern.readers import chakra, json_recovery
from busbw.pattern.source import Source

_TYPES = {"COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6, "COMM_COLL_NODE": 7}
_GRAPH = re.compile(rb'\s*\{\s*"workload_graph"\s*:')
_MESSAGE = re.compile(rb'\s*(?:\{\s*\}\s*)?\{\s*"(?:version|id|name)"\s*:\s*"')
_WHOLE = re.compile(r"s?(?:u?int|fixed)(?:32|64)Val$")


def recognized(head: bytes) -> bool:
    """Whether the bytes begin as one of both."""
    return _GRAPH.match(head) is not None or (
        _MESSAGE.match(head) is not None and b'"attr"' in head and b"_NODE" in head
    )


def read(source: Source, collector: Collector) -> None:
    """Add the calls of one rank, whose number the file's name ends in."""
    data = source.whole(collector)
    rank = source.rank if source.rank is not None else source.number
    collector.process(rank, rank)
    collector.header.world = max(collector.header.world, source.files)
    graph = _GRAPH.match(data)
    nodes = (
        json_recovery.objects(data, "workload_graph")
        if graph
        else json_recovery.documents(data, lambda at: collector.problem(f"{source.name}: {at}"))
    )
    for number, one in enumerate(nodes):
        try:
            node = _node(one)
            if node.kind in _TYPES.values():
                chakra.add(source, collector, rank, node)
        except json_recovery.UNEXPECTED as error:
            collector.problem(f"{source.name}: node {number}: {error}")
    chakra.say_lacking(collector)


def _node(one: dict[str, Any]) -> chakra.Node:
    if "NodeType" in one:  # the feeder's
        times = {"start_us": 0, "duration_us": int(one.get("runtime", 0))}
        return chakra.Node(str(one.get("Name", "")), int(one["NodeType"]), attributes=one, **times)
    attributes = {
        str(attribute["name"]): _value(attribute)
        for attribute in one.get("attr", [])
        if "name" in attribute
    }
    kind = one.get("type", 0)
    return chakra.Node(
        str(one.get("name", "")),
        _TYPES.get(kind, 0) if isinstance(kind, str) else int(kind),
        int(one.get("startTimeMicros", 0)),
        int(one.get("durationMicros", 0)),
        attributes,
    )


def _value(attribute: dict[str, Any]) -> Any:
    """The value under `int64Val`, `stringVal`, `uint32List` and so on; protobuf leaves out a
    value of 0.
    """
    key = next((name for name in attribute if name.endswith(("Val", "List"))), "")
    if not key:
        return 0
    value = attribute[key]
    if key.endswith("List"):
        return (
            [int(number) for number in value.get("values", [])] if isinstance(value, dict) else []
        )
    return int(value) if _WHOLE.match(key) else value
