"""A rank's part: route the tokens, verify and time dispatch and combine, report from process 0."""

import platform
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from busbw.core.dtypes import dtype
from busbw.core.errors import NoMeasurement
from busbw.core.options import CPU_SWEEP_S, MAX_TIME_S
from busbw.core.result import Mismatch, RankDevice
from busbw.core.sizes import format_size
from busbw.core.sweep import Sampling, SweepSpec
from busbw.engines.torch import TorchEngine
from busbw.launch.agreement import attempt
from busbw.launch.control import Control
from busbw.measure import network
from busbw.measure.batches import Batches, HeldBatches, HostClockBatches
from busbw.measure.events import Emit, Ended, EnterPhase, Note, Started, now
from busbw.measure.host_sampler import HostSampler
from busbw.measure.process_groups import Party, facts, join_all
from busbw.measure.processors import share_processors
from busbw.measure.progress import Progress
from busbw.measure.sweep import CPU_PRECISION, GPU_PRECISION, running
from busbw.model.fabric import NoFabric
from busbw.model.own_nics import LeastTime
from busbw.model.usable_hardware import links_of
from busbw.moe.batch import CPU_TOKENS, GPU_TOKENS, batch
from busbw.moe.bound import bound
from busbw.moe.draws import Array, digest
from busbw.moe.exchange import Buffers, RankExchange, buffer_rows
from busbw.moe.opening import Backends, open_backends
from busbw.moe.plan import rank_plan
from busbw.moe.routing import Ids, read_ids
from busbw.moe.types import EXCHANGE, MoeJob, MoeMeasured, MoeResult, MoeRow, MoeSpec, MoeTime
from busbw.moe.visits import TimedLaunch, Visitor
from busbw.moe.volumes import DIRECTIONS, Volumes, volumes

MISMATCHES_KEPT = 8  # of a row
WHOLE = "whole"
# Combine enqueues as much as so many collectives with their fences: fewer operations are held, as a
# GPU's queue has about a thousand places.
LAUNCHES = 4


@dataclass(slots=True)
class _MoeCase:
    """Dispatch or combine of one number of tokens by one backend on this rank.

    `parts` are the whole and each phase. `mismatches` is one for each rank with wrong data; only
    process 0 has them.
    """

    tokens: int
    backend: str
    direction: str
    volumes: Volumes
    exchange: RankExchange
    parts: dict[str, TimedLaunch]
    mismatches: Sequence[Mismatch] = ()


def measure(job: MoeJob, control: Control, emit: Emit, enter_phase: EnterPhase) -> None:
    """Run this process' part of the job. `emit` is only called on process 0."""
    party = join_all(control, "dispatch")
    enter_phase("init", "torch")
    spec, place = SweepSpec(collective="alltoallv"), (party.local, party.color, control.process)
    with network.starting(job, control) as log:
        opened = TorchEngine(control, spec, *place)
    with running(opened):
        enter_phase("prepare", "")
        share_processors(control)
        result = MoeResult(moe=job.moe, **facts(job, party, opened))
        result.library.network = network.agreed(job, control, result.library, log.networks)
        ids, sizes = _tokens(job.moe, control, on_gpus=opened.asynchronous)
        hosts = [device.host for device in result.world.devices]
        backends = open_backends(job.moe, control, hosts, enter_phase, on_gpus=opened.asynchronous)
        cases = _cases(job.moe, control, opened, ids, sizes, backends)
        result.left_out = backends.left_out
        result.library.versions |= {
            name: one.version for name, one in backends.opened.items() if one.version
        }
        if control.process == 0:
            emit(Started(result))
            if note := network.unconfirmed(job, result.library.network):
                emit(Note(note))
        _verify(cases, control, opened, enter_phase)
        with closing(_host_sampler(party, result.world.devices)) as host_sampler:
            visitor = _visitor(job.moe, control, opened, host_sampler, enter_phase)
            parts = [part for case in cases for part in case.parts.values()]
            visitor.time(parts, lambda: emit(_measured(cases, visitor, result)))
        enter_phase("teardown", "")
        for backend in backends.opened.values():
            backend.close()
        if control.process == 0:
            emit(Ended(now(), {}))


def _tokens(spec: MoeSpec, control: Control, *, on_gpus: bool) -> tuple[Array, list[int]]:
    """The experts of all tokens, and the numbers of tokens to measure. Collective."""

    def read(path: str, experts: int, top_k: int) -> Ids:
        ids = read_ids(path, experts, top_k) if control.process == 0 else None
        return control.bcast(ids) or []

    default = GPU_TOKENS if on_gpus else CPU_TOKENS
    ids, sizes = batch(spec, control.processes, default, read)
    if len(set(control.allgather(digest(ids)))) > 1:
        raise NoMeasurement(
            "ranks computed different routings from one seed",
            "install one version of numpy on all hosts, or give --routing file:NAME",
        )
    return ids, sizes


def _cases(
    spec: MoeSpec,
    control: Control,
    opened: TorchEngine,
    ids: Array,
    sizes: Sequence[int],
    backends: Backends,
) -> list[_MoeCase]:
    """Everything to measure, on buffers of the largest size. Collective.

    A backend that refuses a number of tokens is left out there.
    """
    rank = control.process
    plans = {size: rank_plan(ids[:, :size], spec.experts, rank) for size in sizes}
    rows = buffer_rows(plans[sizes[-1]])
    row_bytes = spec.hidden * dtype(spec.datatype).itemsize
    needed = sum(rows.values()) * row_bytes
    needed += sum(one.reserved_bytes(rows, row_bytes) for one in backends.opened.values())
    _check_memory(needed, control, opened, sizes[-1])
    buffers = Buffers(spec, rows, opened.device)
    cases = []
    for size, plan in plans.items():
        moved = volumes(ids[:, :size], spec.experts, row_bytes)
        for name, one in backends.opened.items():
            make = partial(one.exchange, spec, plan, rank, buffers)
            exchange, refused = attempt(control, make)
            if exchange is None or refused:
                backends.left_out[f"{name} at {size} tokens"] = refused
                continue
            for direction in DIRECTIONS:
                parts = _parts(exchange, direction, f"by {name}, {size} tokens", moved)
                cases.append(_MoeCase(size, name, direction, moved, exchange, parts))
    if not cases:
        raise backends.nothing()
    return cases


def _parts(
    exchange: RankExchange, direction: str, of_what: str, moved: Volumes
) -> dict[str, TimedLaunch]:
    """The whole and each phase, to be timed."""
    launches = {WHOLE: exchange.whole(direction), **exchange.launches[direction]}
    return {
        name: TimedLaunch(
            f"{name} of {direction} {of_what}",
            moved.received_bytes,
            launch,
            local=name not in (WHOLE, EXCHANGE),
        )
        for name, launch in launches.items()
    }


def _check_memory(needed: int, control: Control, opened: TorchEngine, tokens: int) -> None:
    """NoMeasurement if the buffers do not fit on one of the ranks. Collective."""
    usable = opened.memory_bytes()
    lacks = control.allgather((needed, usable))
    for rank, (wanted, most) in enumerate(lacks):
        if most is not None and wanted > most:
            raise NoMeasurement(
                f"--tokens {tokens}: rank {rank} needs {format_size(wanted)} for its buffers, and"
                f" has {format_size(most)}",
                f"--tokens {max(tokens // 2, 1)}, or a smaller --hidden",
            )


def _verify(
    cases: Sequence[_MoeCase], control: Control, opened: TorchEngine, enter_phase: EnterPhase
) -> None:
    """Check every element of one operation of each case. Collective."""
    for case in cases:
        size_bytes = case.volumes.received_bytes
        progress = Progress(size_bytes, 1)
        enter_phase("verify", f"{case.direction} by {case.backend}, {case.tokens} tokens", progress)
        found = case.exchange.check(case.direction, lambda: opened.synchronize(0))
        progress.done += 1
        case.mismatches = [one for one in control.gather(found) or () if one]


def _host_sampler(party: Party, devices: Sequence[RankDevice]) -> HostSampler:
    """The sampler of this host; only one process of each has devices to sample."""
    host = platform.node()
    return HostSampler([one for one in devices if one.host == host] if party.local == 0 else [])


def _visitor(
    spec: MoeSpec,
    control: Control,
    opened: TorchEngine,
    host_sampler: HostSampler,
    enter_phase: EnterPhase,
) -> Visitor:
    of_row = spec.max_time_s or 2 * MAX_TIME_S
    limited = not opened.asynchronous and spec.max_time_s is None and spec.tokens is None
    sampling = Sampling(
        precision=GPU_PRECISION if opened.asynchronous else CPU_PRECISION,
        max_time_s=of_row / 4,  # the whole and its three phases
        all_time=True,
        sweep_s=CPU_SWEEP_S if limited else 0.0,
    )
    batches: Batches = HostClockBatches(control)
    if opened.asynchronous:
        held = SweepSpec(collective="alltoallv", agg_iters=LAUNCHES)
        batches = HeldBatches(opened, held)
    return Visitor(opened, control, batches, sampling, host_sampler, enter_phase)


def _measured(cases: Sequence[_MoeCase], visitor: Visitor, result: MoeResult) -> MoeMeasured:
    """All rows as they are; only on process 0."""
    links = links_of(result.world, result.topology, result.environment)
    if isinstance(links, NoFabric):
        return MoeMeasured([_row(case, visitor, None) for case in cases], links.reason)
    hosts = [device.host for device in result.world.devices]
    rows = []
    for case in cases:
        least = bound(case.volumes.matrix(case.direction), hosts, links)
        rows.append(_row(case, visitor, least))
    return MoeMeasured(rows)


def _row(case: _MoeCase, visitor: Visitor, least: LeastTime | None) -> MoeRow:
    times = {name: MoeTime.of(visitor.cell(part)) for name, part in case.parts.items()}
    return MoeRow(
        tokens=case.tokens,
        backend=case.backend,
        direction=case.direction,
        whole=times.pop(WHOLE),
        phases=times,
        wire_bytes=case.volumes.wire_bytes(case.direction),
        received_bytes=case.volumes.received_bytes,
        selections_bytes=case.volumes.selections_bytes,
        imbalance=case.volumes.imbalance,
        bound_s=least.time_s if least else None,
        bound=least.text if least else "",
        wrong=sum(one.wrong for one in case.mismatches),
        mismatches=list(case.mismatches[:MISMATCHES_KEPT]),
    )
