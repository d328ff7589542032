"""Files of busbw's profiler plugin, one for each process: what `busbw capture` records."""

from collections import Counter

from busbw.capture import process_calls, process_file
from busbw.capture.collector import Collector
from busbw.capture.merge import Observed
from busbw.capture.process_calls import Called
from busbw.capture.process_file import MAGIC, ProcessFile
from busbw.capture.source import Source
from busbw.core.env import CAPTURE
from busbw.core.errors import UsageError
from busbw.core.pattern import algbw_bytes
from busbw.core.sizes import counted

Key = tuple[int, int]


def recognized(head: bytes) -> bool:
    """Whether it begins as the plugin's files do."""
    return head.startswith(MAGIC)


def read(source: Source, collector: Collector) -> None:
    """Add the calls of one process."""
    try:
        found = process_file.parse(source.whole(collector), source.name)
    except UsageError as error:
        collector.problem(str(error))
        return
    process, header = source.name, collector.header
    collector.process(process, found.rank)
    collector.host(found.facts.get("host", ""))
    header.world = max(header.world, found.world)
    if found.nccl:
        header.nccl = f"{found.nccl // 10000}.{found.nccl // 100 % 100}.{found.nccl % 100}"
    comms: dict[int, tuple[Key, int]] = {}
    seen: Counter[int] = Counter()
    for record, name in process_file.names(found):
        key = (record.id, seen[record.id])  # one that was made again may have the same id
        seen[record.id] += 1
        comms[record.comm] = key, record.elements
        collector.comm(key, record.elements, name, record.a, process=process, rank=record.peer)
    calls, unknown = process_calls.calls(found)
    ahead_ns = min((called.gpu_ns[0] - called.at_ns for called in calls if called.gpu_ns and not called.captured), default=0)
    for called in calls:
        if called.comm in comms:
            collector.call(process, _observed(called, *comms[called.comm], found, ahead_ns))
        else:
            unknown += 1
    _remarks(collector, found, calls, unknown)


def _observed(called: Called, comm: Key, ranks: int, found: ProcessFile, ahead_ns: int) -> Observed:
    """The call as the collector takes it. The GPU's clock is `ahead_ns` of the host's: no kernel starts before its call."""
    dtype, function = called.dtype, called.function
    size = algbw_bytes(function, called.count, dtype or "uint8", ranks or 1)  # without a type, NCCL has counted bytes
    gpu_at_us = found.time_us(called.gpu_ns[0] - ahead_ns) if called.gpu_ns else None
    return Observed(
        comm, function, size, called.count if dtype else None, dtype, root=called.root, peer=called.peer, algorithm=called.algorithm,
        protocol=called.protocol, channels=called.channels, at_us=found.time_us(called.at_ns),
        gpu_us=called.gpu_us, gpu_at_us=gpu_at_us, stream=called.stream, group=called.group,
    )  # fmt: skip


def _remarks(collector: Collector, found: ProcessFile, calls: list[Called], unknown: int) -> None:
    who = f"rank {found.rank}" if found.rank is not None else found.name
    if unknown:
        collector.problem(f"{who}: {counted(unknown, 'call')} of an unknown function or communicator")
    if found.broken:
        collector.problem(f"{who}: the last {found.broken} bytes are no whole record")
    if found.dropped:
        collector.header.dropped += found.dropped
        why = f", because the disk gave error {found.errno}" if found.errno else ""
        collector.note(f"{who}: {counted(found.dropped, 'record')} lost{why}")
    if found.facts.get("mode") == CAPTURE.timed and found.untimed:
        collector.note(f"{who}: {counted(found.untimed, 'call')} whose end the GPU reported too late or not at all")
    captured = sum(call.captured for call in calls)
    if captured:
        collector.note(f"{who}: {counted(captured, 'call')} in CUDA graphs, whose replays NCCL reports only if they use a network")
