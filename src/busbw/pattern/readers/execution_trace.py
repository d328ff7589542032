"""PyTorch's execution traces (ExecutionTraceObserver, PARAM), schemas 1.0.1 to 1.1.1:
`record_param_comms` nodes have the calls.

A node's inputs are the tensors, a sequence number, the process group, a rank, the function's name,
both splits, and from 1.1.0 on the first rank, the stride and the number of ranks of the group. The
rank is the caller's, for rooted functions the root, for send and recv the peer. A tensor is [id,
storage, offset, elements, bytes of an element, device]. Source:
torch/csrc/distributed/c10d/ParamCommsUtils.hpp,
torch/csrc/profiler/standalone/execution_trace_observer.cpp.

`make_call` makes a call of PyTorch or torchcomms from the elements and types of its tensors; other
readers use it too.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import msgspec

from busbw.core.collectives import BY_NAME
from busbw.core.pattern import key
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.merge import POINT_TO_POINT, ObservedCall
from busbw.pattern.readers import json_recovery
from busbw.pattern.source import PatternSource

_TOTAL_RECEIVED, _TOTAL_SENT = ("all_gather", "gather"), ("reduce_scatter", "scatter")
CALL = "record_param_comms"
_MARK = re.compile(rb'\s*\{\s*"schema"\s*:\s*"\d+\.\d+\.\d+')
# C++ types in `Tensor(...)`, by torch's name; others have it already.
_TYPES = {
    "c10::bfloat16": "bfloat16",
    "c10::half": "half",
    "long int": "int64",
    "unsigned char": "uint8",
    "signed char": "int8",
}
_LEAST_ADDRESS = 1 << 32  # numbers of groups are small, addresses of objects are not
_OF_SIZE = {1: "uint8", 2: "short", 4: "int32", 8: "int64"}


def elements(shapes: Iterable[Iterable[int]]) -> int:
    """Elements of all tensors with these shapes."""
    total = 0
    for shape in shapes:
        product = 1
        for size in shape:
            product *= size
        total += product
    return total


def make_call(
    comm: Hashable, function: str, sent: int, received: int, dtype: str, ranks: int, **fields: Any
) -> ObservedCall:
    """The call that sends `sent` elements of this rank and gives it `received` elements.

    `dtype` is PyTorch's or torchcomms' name; `ranks` 0 is unknown.
    """
    dtype_name, itemsize = merge.element(dtype)
    if function == "alltoall" and sent != received:
        function = "alltoallv"
    total = max(sent, received)
    if function in _TOTAL_RECEIVED:
        total = max(received, sent * ranks)
    elif function in _TOTAL_SENT:
        total = max(sent, received * ranks)
    return ObservedCall(
        comm,
        function,
        total * itemsize,
        merge.count_of(function, sent, received, ranks),
        dtype_name,
        **fields,
    )


class _Node(msgspec.Struct):
    name: str = ""
    inputs: Any = None
    outputs: Any = None
    input_types: list[str] = []


class _ExecutionTrace(msgspec.Struct):
    nodes: list[_Node]


def recognizes(head: bytes) -> bool:
    """Whether this is the trace's JSON object."""
    return _MARK.match(head) is not None and b'"nodes"' in head


def read(source: PatternSource, collector: Collector) -> None:
    data = source.read_all(collector)
    try:
        nodes = msgspec.json.decode(data, type=_ExecutionTrace).nodes
    except json_recovery.BROKEN as error:
        collector.add_problem(f"{source.name}: {error}")
        nodes = list(_nodes(data))
    reader = _ExecutionTraceReader(source, collector)
    for node in nodes:
        if node.name == CALL:
            try:
                reader.node(node)
            except json_recovery.UNEXPECTED as error:
                collector.add_problem(f"{source.name}: {CALL}: {type(error).__name__}: {error}")
    reader.end()


def _nodes(data: bytes) -> Iterator[_Node]:
    for fields in json_recovery.objects(data, "nodes"):
        types = fields.get("input_types")
        yield _Node(
            str(fields.get("name", "")),
            fields.get("inputs"),
            fields.get("outputs"),
            types if isinstance(types, list) else [],
        )


class _ExecutionTraceReader:
    def __init__(self, source: PatternSource, collector: Collector) -> None:
        self._source, self._collector = source, collector
        self._calls: list[tuple[ObservedCall, int]] = []
        self._callers: Counter[int] = Counter()
        self._omitted: Counter[str] = Counter()
        self._addresses: dict[str, int] = {}  # of groups, numbered as they come

    def node(self, node: _Node) -> None:
        """Read one call; ValueError if it has no known function."""
        values = _values(node.inputs)
        names = [at for at, value in enumerate(values) if isinstance(value, str) and _known(value)]
        if not names or names[0] < 2:
            raise ValueError("no function among its inputs")
        at = names[0]
        name, rank = values[at], int(values[at - 1])
        function = merge.function(name)
        if function is None:
            self._omitted[name] += 1
            return
        splits, group = values[at + 1 : at + 3], values[at + 3 : at + 6]
        if function == "alltoallv" and all(len(set(sizes)) < 2 for sizes in splits):
            function = "alltoall"
        sent = list(_tensors(values[:at]))
        received = list(_tensors(_values(node.outputs)))
        comm, ranks = self._comm(values[at - 2], [int(number) for number in group])
        call = _call(comm, function, sent, received, _dtype(node), ranks)
        if function in POINT_TO_POINT:
            call.peer = rank
        elif BY_NAME[function].rooted:
            call.root = rank
        else:
            self._callers[rank] += 1
        self._calls.append((call, ranks))

    def _comm(self, group_name: Any, group: list[int]) -> tuple[Hashable, int]:
        """The key of a process group, and the number of its ranks, 0 if unknown.

        `group_name` is its name, or a list that ends in its description; `group` has the first
        rank, the stride and the number of ranks. Old releases write the address of the group in the
        process: groups are joined by the order in which ranks first use them.
        """
        name, description = str(group_name), ""
        if isinstance(group_name, list) and group_name:
            name, description = str(group_name[0]), str(group_name[-1])
        members = range(0)
        if len(group) == 3:
            first, stride, ranks = group
            if stride > 0 and 0 < ranks < 1 << 20:
                members = range(first, first + stride * ranks, stride)
        key: Hashable = (name, *group)
        shown = description if description not in ("", "undefined") else name
        if not members and name.isdecimal() and int(name[:20]) >= _LEAST_ADDRESS:
            key = ("group", self._addresses.setdefault(name, len(self._addresses)))
            shown = ""
        self._collector.add_comm(key, len(members), shown, members=members)
        return key, len(members)

    def end(self) -> None:
        """Give the calls to the rank in the file's name, or to the rank that made most of them."""
        usual = self._callers.most_common(1)[0][0] if self._callers else self._source.number
        rank = self._source.rank if self._source.rank is not None else usual
        self._collector.add_process(rank, rank)
        for name in self._omitted.elements():
            self._collector.count_omitted(rank, name)
        for call, _ in self._calls:
            self._collector.add_call(rank, call)
        if any(ranks == 0 for _, ranks in self._calls):
            self._collector.add_note(
                "this execution trace does not say how many ranks its groups have: PyTorch 2.4 and"
                " newer write it"
            )


def _values(part: Any) -> list[Any]:
    """A node's inputs or outputs, which older schemas do not wrap in a dictionary."""
    values = part.get("values") if isinstance(part, dict) else part
    return values if isinstance(values, list) else []


def _known(name: str) -> bool:
    return merge.function(name) is not None or key(name) in merge.CONTROL


def _tensors(part: Any) -> Iterator[tuple[int, int]]:
    """Elements and bytes of an element of each tensor, also in lists of lists."""
    if not isinstance(part, list):
        return
    integers = all(isinstance(value, int) for value in part[:5])
    if len(part) == 6 and isinstance(part[5], str) and integers:
        yield part[3], part[4]
    else:
        for value in part:
            yield from _tensors(value)


def _dtype(node: _Node) -> str:
    types = node.inputs.get("types", []) if isinstance(node.inputs, dict) else node.input_types
    match = re.search(r"Tensor\(([^)]+)\)", " ".join(map(str, types)))
    return _TYPES.get(match[1].lower(), match[1]) if match else ""


def _call(
    comm: Hashable,
    function: str,
    sent: list[tuple[int, int]],
    received: list[tuple[int, int]],
    dtype: str,
    ranks: int,
) -> ObservedCall:
    """The call with these tensors; it has its bytes even if its element type has no row."""
    sent_count = sum(count for count, _ in sent)
    received_count = sum(count for count, _ in received)
    itemsize = next((size for _, size in [*sent, *received]), 0)
    if merge.element(dtype)[1] == itemsize:
        return make_call(comm, function, sent_count, received_count, dtype, ranks)
    of_size = _OF_SIZE.get(itemsize, "")
    call = make_call(comm, function, sent_count, received_count, of_size, ranks)
    call.dtype = None
    return call
