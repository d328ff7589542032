"""The pattern of a job from the files that the profiler plugin wrote, one for each process."""

from collections import Counter
from pathlib import Path

from busbw.capture import process_calls, process_file
from busbw.capture.collector import Collector
from busbw.capture.merge import Observed
from busbw.capture.process_calls import Called
from busbw.capture.process_file import ProcessFile
from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.errors import UsageError
from busbw.core.pattern import Pattern, algbw_bytes
from busbw.core.sizes import counted

SOURCE = "profiler"
SUFFIX = ".capture"


def read(folder: Path) -> Pattern | None:
    """The pattern of all files in the folder; None if there is none. A file that cannot be read is counted and named."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        return None
    collector = Collector(SOURCE)
    for path in paths:
        try:
            _add(collector, process_file.read(path))
        except (UsageError, OSError) as error:
            collector.problem(str(error))
    return collector.pattern()


def _add(collector: Collector, found: ProcessFile) -> None:
    header, process = collector.header, found.path.name
    collector.process(process, found.rank)
    collector.host(found.facts.get("host", ""))
    header.world = max(header.world, found.world)
    header.nccl = f"{found.nccl // 10000}.{found.nccl // 100 % 100}.{found.nccl % 100}" if found.nccl else header.nccl
    header.dropped += found.dropped
    comms: dict[int, tuple[int, int]] = {}
    sizes: dict[int, int] = {}
    seen: Counter[int] = Counter()
    for record, name in process_file.names(found):
        key = (record.id, seen[record.id])  # a communicator that was made again may have the same id
        seen[record.id] += 1
        comms[record.comm] = key
        sizes[record.comm] = record.elements
        collector.comm(key, record.elements, name, record.a, process=process, rank=record.peer)
    calls, unknown = process_calls.calls(found)
    for called in calls:
        collector.call(process, _observed(called, comms[called.comm], sizes[called.comm], found))
    _remarks(collector, found, calls, unknown)


def _observed(called: Called, comm: tuple[int, int], ranks: int, found: ProcessFile) -> Observed:
    dtype, function = called.dtype, called.function
    size = algbw_bytes(function, called.count, dtype or "uint8", ranks or 1)  # without a type, NCCL has counted bytes
    return Observed(
        comm, function, size, called.count if dtype else None, dtype, root=called.root, peer=called.peer, algorithm=called.algorithm,
        protocol=called.protocol, channels=called.channels, at_us=(called.at_ns - found.monotonic_ns + found.realtime_ns) / 1000,
        gpu_us=called.gpu_us, gpu_at_us=called.gpu_ns[0] / 1000 if called.gpu_ns else None, stream=called.stream, group=called.group,
    )  # fmt: skip


def _remarks(collector: Collector, found: ProcessFile, calls: list[Called], unknown: int) -> None:
    who = f"rank {found.rank}" if found.rank is not None else found.path.name
    if unknown:
        collector.problem(f"{who}: {counted(unknown, 'call')} of functions that this busbw does not know")
    if found.dropped:
        why = f", because the disk gave error {found.errno}" if found.errno else ""
        collector.note(f"{who}: {counted(found.dropped, 'record')} lost{why}")
    timed = found.facts.get("mode") == "timed" and any(call.function in COLLECTIVES for call in calls)
    if timed and found.untimed:
        collector.note(f"{who}: {counted(found.untimed, 'call')} whose end the GPU did not report in time")
    captured = sum(call.captured for call in calls)
    if captured:
        collector.note(
            f"{who}: {counted(captured, 'call')} in CUDA graphs; replays without network traffic are not visible to NCCL's profiler"
        )
