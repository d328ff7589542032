"""Files of busbw's profiler plugin, one for each process: what `busbw capture` records."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from busbw.core.env import CAPTURE
from busbw.core.errors import UsageError
from busbw.core.pattern import KERNEL, algbw_bytes
from busbw.core.sizes import counted
from busbw.measure import profiler_calls, profiler_file
from busbw.measure.profiler_calls import ProfiledCall
from busbw.measure.profiler_file import MAGIC, ProcessFile
from busbw.pattern import graph_replays
from busbw.pattern.collector import Collector
from busbw.pattern.graph_replays import Expanded, RecordedGraph
from busbw.pattern.merge import POINT_TO_POINT, ObservedCall
from busbw.pattern.source import PatternSource

_SHIFTED = (
    "calls without a time: after a send of a rank to itself, as in alltoall, NCCL before 2.31"
    " reports times of other calls of the communicator; so do some of its later versions after a"
    " broadcast"
)


@dataclass(slots=True)
class CommOfRank:
    """A communicator as one of its ranks made it."""

    key: tuple[int, int]
    ranks: int
    name: str
    hosts: int
    rank: int
    shared: bool = False  # another rank in it is of the same process
    process: Hashable = None


def recognizes(head: bytes) -> bool:
    """Whether it begins as the plugin's files do."""
    return head.startswith(MAGIC)


def read(source: PatternSource, collector: Collector) -> None:
    try:
        process_file = profiler_file.parse(source.read_all(collector), source.name)
    except UsageError as error:
        collector.add_problem(str(error))
        return
    add(process_file, source.name, collector, graphs=graph_replays.parse(source.graphs))


def add(
    process_file: ProcessFile,
    name: str,
    collector: Collector,
    made: Mapping[int, int] | None = None,
    graphs: Sequence[RecordedGraph] = (),
) -> None:
    """Add the calls of a process, whose file has this name, and those of replays of its `graphs`.

    `made`: how many collectives it had made before, by its number of the communicator, where the
    file lacks them. Calls are then told by their number, and not by their functions and sizes.
    """
    comms = add_comms(process_file, name, collector)
    calls, unknown, shifted = profiler_calls.read_calls(process_file, with_replays=not graphs)
    since_boot_ns = process_file.realtime_ns - process_file.monotonic_ns
    expanded = graph_replays.expanded(calls, graphs, since_boot_ns)
    calls = expanded.calls
    ahead_ns = _ahead_ns(calls, comms)
    numbers = None if made is None else Counter(made)
    for call in calls:
        if call.comm in comms:
            comm = comms[call.comm]
            ahead = ahead_ns.get(_clock(call, comm), 0)
            observed = _call(call, comm, process_file, ahead)
            if numbers is not None and call.function not in POINT_TO_POINT:
                numbers[call.comm] += 1
                observed.seq = numbers[call.comm]
            collector.add_call(comm.process, observed)
        else:
            unknown += 1
    _add_unordered(expanded, comms, process_file, collector)
    _add_remarks(collector, process_file, calls, unknown, shifted)
    _add_graph_remarks(collector, process_file, expanded)


def _add_unordered(
    expanded: Expanded,
    comms: Mapping[int, CommOfRank],
    process_file: ProcessFile,
    collector: Collector,
) -> None:
    """Add the calls of replays whose moments are unknown: with them no order is kept."""
    if expanded.unordered:
        collector.add_note(
            "graphs were replayed too often to note each moment: calls are counted, their order is"
            " not kept"
        )
        collector.drop_order()
    for call, times in expanded.unordered:
        if call.comm in comms:
            comm = comms[call.comm]
            collector.add_call(comm.process, _call(call, comm, process_file, 0), times)


def add_comms(process_file: ProcessFile, name: str, collector: Collector) -> dict[int, CommOfRank]:
    """Add the ranks and communicators of a process; returns these by their number in it."""
    header = collector.header
    comms = _read_comms(process_file)
    ranks = {comm.rank for comm in comms.values()}
    several = len(ranks) > 1 and any(comm.shared for comm in comms.values())
    # A process that drives several GPUs is several ranks, which the launcher has not numbered.
    host = process_file.facts.get("host", "")
    collector.add_host(host, name)  # also if it has no communicator
    for comm in comms.values():
        comm.process = (name, comm.rank) if several else name
        collector.add_process(comm.process, None if several else process_file.rank)
        collector.add_host(host, comm.process)
    header.world = max(header.world, process_file.world)
    nccl = process_file.nccl
    if nccl:
        header.nccl = f"{nccl // 10000}.{nccl // 100 % 100}.{nccl % 100}"
    for comm in comms.values():
        collector.add_comm(
            comm.key, comm.ranks, comm.name, comm.hosts, process=comm.process, rank=comm.rank
        )
    return comms


def _read_comms(process_file: ProcessFile) -> dict[int, CommOfRank]:
    """The communicators by their number in the process.

    One that was made again may have the same id.
    """
    comms: dict[int, CommOfRank] = {}
    times_made: Counter[tuple[int, int]] = Counter()
    ranks: dict[int, set[int]] = {}
    for record, name in profiler_file.names(process_file):
        again = times_made[record.id, record.peer]
        times_made[record.id, record.peer] += 1
        comms[record.comm] = CommOfRank(
            (record.id, again), record.elements, name, record.a, record.peer
        )
        ranks.setdefault(record.id, set()).add(record.peer)
    for comm in comms.values():
        comm.shared = len(ranks[comm.key[0]]) > 1
    return comms


def _clock(call: ProfiledCall, comm: CommOfRank) -> Hashable:
    """What the starts of calls on the GPU are counted from: each GPU has a moment for NCCL's kernel
    events, and another one for CUDA events.
    """
    return comm.process, call.clock == KERNEL


def _ahead_ns(calls: list[ProfiledCall], comms: dict[int, CommOfRank]) -> dict[Hashable, int]:
    """How far each clock is ahead of the host's: no kernel starts before its call."""
    ahead_ns: dict[Hashable, int] = {}
    for call in calls:
        if call.gpu_ns and not call.captured and call.comm in comms:
            clock = _clock(call, comms[call.comm])
            delay_ns = call.gpu_ns[0] - call.at_ns
            ahead_ns[clock] = min(ahead_ns.get(clock, delay_ns), delay_ns)
    return ahead_ns


def _call(
    call: ProfiledCall, comm: CommOfRank, process_file: ProcessFile, ahead_ns: int
) -> ObservedCall:
    """The call as the collector takes it.

    The GPU's clock is `ahead_ns` of the host's: no kernel starts before its call.
    """
    dtype, function = call.dtype, call.function
    # Without a type, NCCL has counted bytes.
    size = algbw_bytes(function, call.count, dtype or "uint8", comm.ranks or 1)
    gpu_at_us = process_file.time_us(call.gpu_ns[0] - ahead_ns) if call.gpu_ns else None
    return ObservedCall(
        comm.key,
        function,
        size,
        call.count if dtype else None,
        dtype,
        root=call.root,
        peer=call.peer,
        algorithm=call.algorithm,
        protocol=call.protocol,
        channels=call.channels,
        at_us=process_file.time_us(call.at_ns),
        gpu_us=call.gpu_us,
        gpu_at_us=gpu_at_us,
        stream=call.stream,
        group=call.group,
        clock=call.clock,
    )


def _add_remarks(
    collector: Collector,
    process_file: ProcessFile,
    calls: list[ProfiledCall],
    unknown: int,
    shifted: int,
) -> None:
    who = f"rank {process_file.rank}" if process_file.rank is not None else process_file.name
    if not calls:
        collector.add_note(f"{who}: NCCL reported no call, as of a communicator with one rank")
    if unknown:
        collector.add_problem(
            f"{who}: {counted(unknown, 'call')} of an unknown function or communicator"
        )
    if process_file.broken:
        collector.add_problem(f"{who}: the last {process_file.broken} bytes are no whole record")
    if process_file.dropped:
        collector.header.dropped += process_file.dropped
        why = f", because the disk gave error {process_file.errno}" if process_file.errno else ""
        collector.add_note(f"{who}: {counted(process_file.dropped, 'record')} lost{why}")
    if process_file.facts.get("mode") == CAPTURE.timed:
        _add_untimed(collector, process_file, calls, who)
    if shifted:
        collector.add_note(_SHIFTED)
    if process_file.interface == 2:
        collector.add_note(
            "NCCL before 2.27 does not tell a communicator's ranks: bytes of all_gather and"
            " reduce_scatter are those of one rank"
        )


def _add_graph_remarks(collector: Collector, process_file: ProcessFile, expanded: Expanded) -> None:
    """Say what is known of calls in CUDA graphs."""
    who = f"rank {process_file.rank}" if process_file.rank is not None else process_file.name
    if expanded.captured:
        collector.add_note(
            f"{who}: {counted(expanded.captured, 'call')} in CUDA graphs,"
            f" {counted(expanded.replayed, 'call')} by their replays, of which NCCL gives no time"
        )
    if not expanded.unknown:
        return
    text = f"{who}: {counted(expanded.unknown, 'call')} in CUDA graphs, of which NCCL gives no time"
    if process_file.captured:
        text += "; replays of the first one that was captured are seen only if they use a network"
    else:
        text += "; it reports replays only if they use a network"
    collector.add_note(text)


def _add_untimed(
    collector: Collector, process_file: ProcessFile, calls: list[ProfiledCall], who: str
) -> None:
    """Say how many calls have no time, and why."""
    if "no_events" in process_file.facts:
        collector.add_note(
            f"{who}: timed by NCCL's kernel events, because CUDA events cannot be used:"
            f" {process_file.facts['no_events']}"
        )
    reasons = [
        (process_file.no_event, ("launch", "es"), "while all CUDA events were in use"),
        (process_file.failed, ("CUDA event", "s"), "failed"),
        (process_file.untimed, ("kernel", "s"), "whose end was reported too late or not at all"),
    ]
    untimed = sum(call.gpu_ns is None for call in calls)
    texts = [f"{counted(number, *noun)} {what}" for number, noun, what in reasons if number]
    if untimed and texts:
        collector.add_note(f"{who}: {counted(untimed, 'call')} without a time: {', '.join(texts)}")
