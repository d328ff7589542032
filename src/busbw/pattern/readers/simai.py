"""SimAI's workload: the layers of one training step, each with a call in the forward pass and two
in the backward pass.

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 ... all_gpus: 32 ...
    <number of layers>
    <name> -1 <ns> <type> <bytes> <ns> <type> <bytes> <ns> <type> <bytes> <update>

Each layer has three groups of time, type and bytes: of the forward pass, of the gradients of the
inputs, and of the gradients of the weights. The first two go to the tensor-parallel group and the
last one to the data-parallel group, unless the type ends in _EP or _DP_EP.

Source: aliyun/SimAI, example/*.txt, and ASTRA-sim's Workload.cc.
"""

import re

from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.merge import ObservedCall
from busbw.pattern.source import PatternSource

_OPTION = re.compile(r"(\w+): +(\d{1,9})(?!\d)", re.ASCII)
_TITLE = re.compile(rb"(HYBRID|DATA|MODEL|MICRO|TRANSFORMER)\w*")
_FORWARD, _INPUT, _WEIGHT = 3, 6, 9  # columns of the types
_PROCESS = "every rank"


def recognizes(head: bytes) -> bool:
    """Whether the first line names a kind of parallelism, and the second is a number."""
    lines = head.split(b"\n", 2)
    return len(lines) > 1 and bool(_TITLE.match(lines[0])) and lines[1].strip().isdigit()


def read(source: PatternSource, collector: Collector) -> None:
    """Add one training step of a typical rank: forward, then backward from the last layer."""
    lines = ((number, line.decode(errors="replace")) for number, line in source.lines(collector))
    _, title = next(lines, (1, ""))
    sizes = _group_sizes(title)
    collector.header.world = sizes["ALL"]
    collector.header.notes.append(
        "SimAI's workload has no element types and roots, and the computing between calls is"
        " left out"
    )
    _, announced = next(lines, (2, ""))
    announced = announced.strip()
    layers = []
    for number, line in lines:
        columns = line.split()
        if len(columns) >= 12:
            layers.append((number, columns))
        elif columns:
            collector.add_problem(f"{source.name}: line {number}: {len(columns)} columns, not 12")
    if announced != str(len(layers)):
        collector.add_problem(f"{source.name}: {announced} layers announced, {len(layers)} there")
    steps = [(layer, _FORWARD) for layer in layers]
    steps += [(layer, column) for layer in reversed(layers) for column in (_INPUT, _WEIGHT)]
    for (number, columns), column in steps:
        kind, size = columns[column : column + 2]
        try:
            _add(collector, sizes, kind, int(size), "DP" if column == _WEIGHT else "TP")
        except ValueError as error:
            collector.add_problem(f"{source.name}: line {number}: {error}")


def _group_sizes(title: str) -> dict[str, int]:
    """The number of ranks of each kind of group, from the first line; 0 is unknown."""
    options = {name: int(value) for name, value in _OPTION.findall(title)}
    tensor = options.get("model_parallel_NPU_group", 1)
    expert = options.get("ep", 1)
    stages = options.get("pp", 1)
    world = options.get("all_gpus", 0)
    return {
        "TP": tensor,
        "EP": expert,
        "ALL": world,
        "DP": world // max(1, tensor * stages),
        "DP_EP": world // max(1, tensor * stages * expert),
    }


def _add(
    collector: Collector, sizes: dict[str, int], kind: str, size: int, default_group: str
) -> None:
    """Add a call of `size` bytes, whose `kind` is a function and, after `_`, a kind of group."""
    if kind == "NONE" or size == 0:
        return
    name, _, suffix = kind.partition("_")
    group = suffix if suffix in sizes else default_group
    function = merge.function(name)
    if function is None:
        raise ValueError(f"unknown type {kind}")
    collector.add_comm(group, sizes[group], group)
    collector.add_call(_PROCESS, ObservedCall(group, function, size))
