"""Predicts a recorded application's communication on another system."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import msgspec

from busbw.core.collectives import BY_NAME
from busbw.core.errors import NoMeasurement
from busbw.core.pattern import RECV, SEND, US, Comm, Pattern, PatternRow
from busbw.core.pattern_weights import average, coverage, ranks_read, scaled, weights, world_of
from busbw.core.sizes import counted
from busbw.model.estimate import EstimateInputs
from busbw.model.forecast import MeasuredCurves, forecast, published
from busbw.model.link_times import link_times
from busbw.model.nccl.p2p import PAIRS
from busbw.model.overlap import Ratios
from busbw.model.overlap_notes import overlap_note, unused_notes
from busbw.model.pattern_overlap import overlap
from busbw.model.predict import check, describe
from busbw.model.spine import Spine
from busbw.model.spine_notes import spine_notes
from busbw.model.systems import System
from busbw.model.training_step import RecordedTraining, predicted_step
from busbw.model.types import Forecast, PatternPrediction, PredictedRow, PredictedStep

PACKED = "ranks whose place is unknown are placed host by host"
SENT = "its time is that of the send"


@dataclass(frozen=True, slots=True)
class PatternJob:
    """The job that a pattern is predicted for: `hosts` with `per_host` ranks each, by the rule
    `scale` where that is not as recorded.

    0 means not stated: all GPUs of a host, and as many hosts as the recorded ranks fill.
    """

    hosts: int = 0
    per_host: int = 0
    scale: str = "none"


def predict_pattern(
    pattern: Pattern,
    setting: EstimateInputs,
    source: str,
    system_source: str,
    evidence: MeasuredCurves | None = None,
    job: PatternJob | None = None,
    ratios: Ratios | None = None,
    training: RecordedTraining | None = None,
) -> PatternPrediction:
    """The prediction of every row of the pattern, and of the step of `training`, of which it is
    the record.

    Ranks of the job fill the hosts one after the other, whatever hosts they were recorded on.
    `ratios` are measured ones of functions that run together (model.overlap). UsageError if the
    pattern has another number of ranks than the job, and no rule scales it; NoMeasurement if it
    has no call.
    """
    job = job or PatternJob()
    if not pattern.rows:
        message = "; ".join([f"{source}: no call in it has a size", *coverage(pattern)])
        raise NoMeasurement(message, f"busbw show {source}, for the time of its kernels")
    recorded_ranks = world_of(pattern)
    per_host = job.per_host or setting.system.gpus
    check(setting.system, job.hosts or 1, per_host)
    ranks = job.hosts * per_host or recorded_ranks
    notes = coverage(pattern)
    predicted = pattern
    if job.hosts:
        notes += _unsized(pattern, ranks)
        predicted = scaled(_sized(pattern, ranks), ranks, job.scale)
    rows = [
        _row(predicted, row, weight, setting, per_host, evidence)
        for row, weight in zip(predicted.rows, weights(predicted), strict=True)
    ]
    hosts = job.hosts or max([1, ceil(ranks / per_host), *(row.hosts for row in rows)])
    fullest = per_host if job.hosts else max((row.per_host for row in rows), default=1)
    if any(not comm.members and 1 < comm.ranks != ranks for comm in predicted.comms):
        notes.append(PACKED)
    overlapped = overlap(predicted, rows, ratios or {}, per_host, gpus_of_nic(setting.system))
    notes += unused_notes(overlapped, ratios or {})
    notes += spine_notes(setting, []) if any(row.hosts > 1 for row in rows) else []
    about = describe(setting.system, hosts, min(fullest, per_host), setting.release, system_source)
    shorter, longer = _range(rows)
    return PatternPrediction(
        source=source,
        described=about,
        rows=rows,
        recorded_s=pattern.header.seconds,
        ranks=ranks,
        recorded_ranks=recorded_ranks,
        scale=job.scale if ranks != recorded_ranks else "",
        least_s=overlapped.total.least_s,
        most_s=overlapped.total.most_s,
        low_s=overlapped.total.least_s * shorter,
        high_s=overlapped.total.most_s * longer,
        step=_step(training, setting, ranks, per_host, recorded_ranks, evidence),
        notes=[overlap_note(overlapped, average(pattern)), *notes],
    )


def _range(rows: Sequence[PredictedRow]) -> tuple[float, float]:
    """The factors of the total if all calls are at the fast and at the slow end of their ranges."""
    total_s = shortest_s = longest_s = 0.0
    for row in rows:
        if row.forecast:
            total_s += row.total_s
            shortest_s += row.total_s * row.forecast.busbw / row.forecast.high
            longest_s += row.total_s * row.forecast.busbw / row.forecast.low
    return (shortest_s / total_s, longest_s / total_s) if total_s else (1.0, 1.0)


def _step(
    training: RecordedTraining | None,
    setting: EstimateInputs,
    ranks: int,
    per_host: int,
    recorded_ranks: int,
    evidence: MeasuredCurves | None,
) -> PredictedStep | None:
    """The step of a training of all ranks."""
    if training is None or training.ranks != recorded_ranks:
        return None
    hosts = ceil(ranks / per_host)
    if hosts > 1 and not setting.system.nics:
        return None
    return predicted_step(training, setting, hosts, ceil(ranks / hosts), evidence or published())


def _unsized(pattern: Pattern, ranks: int) -> list[str]:
    unknown = sum(not comm.ranks for comm in pattern.comms)
    if not unknown or ranks <= 1:
        return []
    comms = counted(unknown, "communicator")
    return [f"{comms} of an unknown number of ranks: taken to be all {ranks}"]


def _sized(pattern: Pattern, ranks: int) -> Pattern:
    """The pattern with communicators of an unknown size as those of all ranks."""
    comms = [
        comm if comm.ranks else msgspec.structs.replace(comm, ranks=ranks) for comm in pattern.comms
    ]
    return replace(pattern, comms=comms)


def _row(
    pattern: Pattern,
    row: PatternRow,
    weight: float,
    setting: EstimateInputs,
    per_host: int,
    evidence: MeasuredCurves | None,
) -> PredictedRow:
    comm = pattern.comm(row)
    hosts, fullest = place(comm, per_host)
    point_to_point = row.function in (SEND, RECV)
    occupied = weight
    setting = replace(setting, spine=under_leaves(setting.spine, comm, row, per_host))
    if point_to_point:
        setting = replace(setting, comm=(hosts, fullest) if hosts > 1 else None)
        hosts, fullest = (1, 2) if _on_one_host(comm, row, per_host) else (2, 1)
        occupied = 1 / ranks_read(pattern)  # the sends of a group follow each other
    expected, reason = _forecast(pattern, row, setting, (hosts, fullest), evidence)
    busy_s = 0.0, 0.0
    if expected:
        name, algorithm = _collective(row.function), expected.algorithm
        busy_s = link_times(setting, BY_NAME[name], hosts, fullest, row.bytes, algorithm)
    return PredictedRow(
        row.id,
        row.function,
        row.bytes,
        row.calls,
        hosts,
        fullest,
        expected,
        reason,
        measured_s(row, weight),
        occupied,
        *busy_s,
    )


def _collective(function: str) -> str:
    """The collective whose model gives a function's time: sendrecv for a send or receive."""
    return PAIRS if function in (SEND, RECV) else function


def _forecast(
    pattern: Pattern,
    row: PatternRow,
    setting: EstimateInputs,
    shape: tuple[int, int],
    evidence: MeasuredCurves | None,
) -> tuple[Forecast | None, str]:
    hosts, per_host = shape
    if row.function == RECV and any(
        other.function == SEND and other.comm == row.comm for other in pattern.rows
    ):
        return None, SENT
    if not hosts:
        return None, "how many ranks it has is unknown: --nodes says it of the job"
    if hosts * per_host < 2:
        return None, "one rank exchanges nothing"
    if hosts > 1 and not setting.system.nics:
        why = setting.system.nics_unknown or "the system has no NICs"
        return None, f"its ranks are on {hosts} hosts, and {why}"
    name = _collective(row.function)
    if name not in BY_NAME:
        return None, f"{row.function[:40]} is not a collective that busbw knows"
    if row.bytes <= 0:
        return None, "it has no bytes"
    setting = replace(setting, dtype=row.dtype or setting.dtype, op=row.op or setting.op)
    expected = forecast(setting, BY_NAME[name], hosts, per_host, row.bytes, evidence)
    return expected, "" if expected else "no algorithm can run it"


def place(comm: Comm, per_host: int) -> tuple[int, int]:
    """On how many hosts of `per_host` ranks a communicator is, and how many of its ranks share one.

    If hosts have different numbers of them, the fullest host counts. (0, 0) where the number of
    ranks is unknown.
    """
    if comm.members:
        ranks_on = Counter(member // per_host for member in comm.members)
        return len(ranks_on), max(ranks_on.values())
    if 0 < comm.hosts <= comm.ranks and ceil(comm.ranks / comm.hosts) <= per_host:
        return comm.hosts, ceil(comm.ranks / comm.hosts)
    hosts = ceil(comm.ranks / per_host)
    return hosts, ceil(comm.ranks / hosts) if hosts else 0


def gpus_of_nic(system: System) -> int:
    """How many GPUs of a host use the same NIC."""
    return max(1, ceil(system.gpus / system.nics)) if system.nics else 1


def under_leaves(spine: Spine, comm: Comm, row: PatternRow, per_host: int) -> Spine:
    """The spine for a row: with as many hosts under a leaf as the communicator has there, or for a
    send, both sides. Hosts whose place is unknown follow each other.
    """
    if not spine.hosts_per_leaf or not comm.members:
        return spine
    members = _sides(comm, row) or comm.members
    hosts = {member // per_host for member in members}
    leaves = {host // spine.hosts_per_leaf for host in hosts}
    if len(leaves) == 1:
        return replace(spine, hosts_per_leaf=max(spine.hosts_per_leaf, len(hosts)))
    return replace(spine, hosts_per_leaf=ceil(len(hosts) / len(leaves)))


def _sides(comm: Comm, row: PatternRow) -> list[int]:
    """Both ranks of a send or receive, as ranks of the job; [] if unknown, or a collective."""
    if row.rank is None or row.peer is None:
        return []
    return [_member(comm.members, row.rank), _member(comm.members, row.peer)]


def _on_one_host(comm: Comm, row: PatternRow, per_host: int) -> bool:
    """Whether a send or receive stays on a host; if unknown, whether its communicator does."""
    sides = _sides(comm, row)
    if not sides:
        hosts, _ = place(comm, per_host)
        return hosts == 1
    return len({side // per_host for side in sides}) == 1


def _member(members: Sequence[int], rank: int) -> int:
    return members[rank] if 0 <= rank < len(members) else rank


def measured_s(row: PatternRow, weight: float) -> float | None:
    """What all calls took where they were recorded, in seconds, by the GPU's clock or else the
    host's; None if none was timed.

    Averaged over the ranks read, of which a call occupied the part `weight`.
    """
    times = row.gpu_us or row.cpu_us
    if not times or not times.n:
        return None
    return weight * times.total / times.n * row.calls * US
