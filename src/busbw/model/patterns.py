"""Predicts a recorded application's communication on another system."""

from collections.abc import Sequence
from math import ceil

from busbw.core.collectives import BY_NAME
from busbw.core.pattern import RECV, SEND, US, Comm, Pattern, PatternRow
from busbw.core.pattern_weights import weights, world_of
from busbw.core.prediction import Forecast, PatternPrediction, PredictedRow
from busbw.model.estimate import Fits, Setting
from busbw.model.levels import described
from busbw.model.predict import forecast
from busbw.model.systems import System

PACKED = "ranks whose place is unknown are placed host by host"
SENT = "its time is that of the send"


def predict_pattern(pattern: Pattern, setting: Setting, source: str, system_source: str, fits: Fits | None = None) -> PatternPrediction:
    """Every row of the pattern. Ranks of the job fill the hosts one after the other, whatever hosts they were recorded on."""
    rows = [_row(pattern, row, weight, setting, fits or {}) for row, weight in zip(pattern.rows, weights(pattern), strict=True)]
    hosts = max([1, ceil(pattern.header.world / setting.system.gpus), *(row.hosts for row in rows)])
    per_host = max((row.per_host for row in rows), default=1)
    unplaced = any(not comm.members and comm.ranks > 1 and comm.ranks != pattern.header.world for comm in pattern.comms)
    notes = ["calls are added up one after the other, average of all ranks: what overlaps with other calls or computation costs less"]
    return PatternPrediction(
        source=source,
        described=described(setting.system, hosts, min(per_host, setting.system.gpus), setting.release, system_source),
        rows=rows,
        recorded_s=pattern.header.seconds,
        notes=notes + ([PACKED] if unplaced else []),
    )


def _row(pattern: Pattern, row: PatternRow, weight: float, setting: Setting, fits: Fits) -> PredictedRow:
    comm = pattern.comm(row)
    hosts, per_host = placed(comm, setting.system)
    if row.function in (SEND, RECV):
        hosts, per_host = (1, 2) if _beside(comm, row, setting.system) else (2, 1)
    found, reason = _forecast(pattern, row, setting, (hosts, per_host), fits)
    occupied = 1 / world_of(pattern) if row.function in (SEND, RECV) else weight  # the sends of a group follow each other
    return PredictedRow(row.id, row.function, row.bytes, row.calls, hosts, per_host, found, reason, measured(row, weight), occupied)


def _forecast(pattern: Pattern, row: PatternRow, setting: Setting, place: tuple[int, int], fits: Fits) -> tuple[Forecast | None, str]:
    hosts, per_host = place
    if row.function == RECV and any(other.function == SEND and other.comm == row.comm for other in pattern.rows):
        return None, SENT
    if hosts * per_host < 2:
        return None, "one rank exchanges nothing"
    if hosts > 1 and not setting.system.nics:
        return None, f"its ranks are on {hosts} hosts, and the system has no NICs"
    name = "sendrecv" if row.function in (SEND, RECV) else row.function
    if name not in BY_NAME:
        return None, f"{row.function[:40]} is not a collective that busbw knows"
    if row.bytes <= 0:
        return None, "it has no bytes"
    found = forecast(setting, BY_NAME[name], hosts, per_host, row.bytes, fits)
    return found, "" if found else "no algorithm can run it"


def placed(comm: Comm, system: System) -> tuple[int, int]:
    """On how many hosts a communicator's ranks are, and how many share one; uneven ones count as if the fullest host were every host."""
    if comm.members:
        on = [member // system.gpus for member in comm.members]
        return len(set(on)), max(map(on.count, set(on)))
    if 0 < comm.hosts <= comm.ranks and ceil(comm.ranks / comm.hosts) <= system.gpus:
        return comm.hosts, ceil(comm.ranks / comm.hosts)
    hosts = ceil(comm.ranks / system.gpus)
    return hosts, ceil(comm.ranks / hosts) if hosts else 0


def _beside(comm: Comm, row: PatternRow, system: System) -> bool:
    """Whether both sides of a send or receive are on one host; unknown sides are, if the whole communicator is."""
    if row.rank is None or row.peer is None:
        return placed(comm, system)[0] == 1
    one, other = (_member(comm.members, rank) for rank in (row.rank, row.peer))
    return one // system.gpus == other // system.gpus


def _member(members: Sequence[int], rank: int) -> int:
    return members[rank] if 0 <= rank < len(members) else rank


def measured(row: PatternRow, weight: float) -> float | None:
    """What all calls took where they were recorded, in seconds, by the GPU's clock or else the host's; None if none was timed.

    Averaged over the job's ranks, of which a call occupied the part `weight`.
    """
    times = row.gpu_us or row.cpu_us
    return weight * times.total / times.n * row.calls * US if times and times.n else None
