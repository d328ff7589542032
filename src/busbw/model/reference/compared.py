"""A measured busbw beside published runs, and a user's own runs, of the same system and job.

Own runs come first: where there are any of the job, published ones are not compared with. For
what is expected, own runs of the system are a calibration.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean, median
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.cells import Figure
from busbw.core.collectives import Collective
from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.model.estimate import EstimateInputs
from busbw.model.forecast import MeasuredCurves, forecast, job_of, unlimited
from busbw.model.measured_system import of_result, shape
from busbw.model.nccl.choice import ALL_ALLOWED, allowed
from busbw.model.nccl.constants import of_number
from busbw.model.networks import NetworkModel, networks
from busbw.model.reference.curves import Reference, ReferenceCurve
from busbw.model.reference.results import nics_text
from busbw.model.reference.similar import ReferenceJob, is_reduced_alike, of_shape
from busbw.model.systems import System, with_assumed_network
from busbw.model.types import Forecast

# NCCL's names of networks.
RDMA, SOCKET, PLUGIN = "IB", "Socket", "busbw"


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One measured size beside its reference. busbw is in bytes per second."""

    size_bytes: int
    dtype: str
    busbw: float
    runs: Annotated[
        tuple[str, ...],
        Meta(description="those of the same system and job that measured this size"),
    ] = ()
    median: Annotated[float | None, Meta(description="of these runs")] = None
    fastest: Annotated[float | None, Meta(description="of these runs")] = None
    own: Annotated[bool, Meta(description="whether the runs are the user's")] = False
    expected: Annotated[Forecast | None, Meta(description="null: the model has no time")] = None


@dataclass(frozen=True)
class ComparedRun:
    """What a result ran: `row` on `hosts` hosts with `per_host` ranks each, of a system."""

    setting: EstimateInputs
    row: Collective
    hosts: int
    per_host: int

    def job(self, dtype: str, op: str) -> ReferenceJob:
        """The job with this element type and operator."""
        setting = replace(self.setting, dtype=dtype, op=op)
        return job_of(setting, self.row.name, self.hosts, self.per_host)

    @property
    def text(self) -> str:
        """`1 x 8 H200`, `2 x 8 H200 with 8x400G`."""
        job = self.job("float", "sum")
        gpu = job.gpu.upper() or self.setting.system.gpu
        has_nics = self.hosts > 1 and self.setting.system.nics
        nics = f" with {nics_text(self.setting.system)}" if has_nics else ""
        return f"{self.hosts} x {self.per_host} {gpu}{nics}"


def ran_of(result: Result, system: System, hosts_and_ranks: tuple[int, int]) -> ComparedRun:
    """What a result of this system and of so many hosts and ranks on each ran."""
    if result.library.network == SOCKET:
        system = replace(system, network=networks()["socket"])
    elif result.library.network == PLUGIN:
        system = replace(system, network=NetworkModel(PLUGIN, 0.0, "as recorded"))
    elif result.library.network != RDMA:
        system = with_assumed_network(system)
    row = result.spec.row
    may = allowed(result.environment, row.name)
    return ComparedRun(
        EstimateInputs(system, of_number(result.library.nccl), may), row, *hosts_and_ranks
    )


def recorded_run(result: Result) -> ComparedRun | str:
    """What a result ran on the system that it recorded; a text says what is missing."""
    system = of_result(result)
    return system if isinstance(system, str) else ran_of(result, system, shape(result))


def compare(ran: ComparedRun, figure: Figure, known: Reference) -> Compared:
    """One measured cell beside the runs of the same job and what is expected."""
    size_bytes, dtype = figure.row.size_bytes, figure.row.dtype or "float"
    setting = setting_of(ran, figure)
    expected = forecast(
        setting, ran.row, ran.hosts, ran.per_host, size_bytes, evidence(setting, known)
    )
    curves = same_job(ran, figure, known, expected.algorithm if expected else "")
    at_size = [curve for curve in curves if curve.busbw(size_bytes)]
    return Compared(
        size_bytes=size_bytes,
        dtype=dtype,
        busbw=figure.busbw,
        runs=tuple(dict.fromkeys(curve.run for curve in at_size)),
        median=_median_busbw(at_size, size_bytes) if at_size else None,
        fastest=max((curve.busbw(size_bytes) or 0.0 for curve in at_size), default=None),
        own=bool(at_size) and at_size[0] in known.own,
        expected=expected,
    )


def setting_of(ran: ComparedRun, figure: Figure) -> EstimateInputs:
    row = figure.row
    setting = replace(ran.setting, dtype=row.dtype or "float", op=row.op or "sum")
    return unlimited(setting, ran.row.name, ran.hosts, ran.per_host, row.size_bytes)


def same_job(
    ran: ComparedRun, figure: Figure, known: Reference, algorithm: str = ""
) -> list[ReferenceCurve]:
    """The curves of the same system and job as a cell: a user's own, else published ones."""
    setting = setting_of(ran, figure)
    if not _is_plain(setting):
        return []
    job = job_of(setting, ran.row.name, ran.hosts, ran.per_host)
    return _of_job(known, job, algorithm)


def _of_job(known: Reference, job: ReferenceJob, algorithm: str = "") -> list[ReferenceCurve]:
    return _same(known.own, job, algorithm) or _same(known.published, job, algorithm)


def _same(
    curves: Sequence[ReferenceCurve], job: ReferenceJob, algorithm: str
) -> list[ReferenceCurve]:
    of_collective = [curve for curve in curves if curve.collective == job.collective]
    return [
        curve
        for curve in of_shape(of_collective, job)
        if job.gpu
        and curve.gpu == job.gpu
        and is_reduced_alike(curve, job)
        and (job.hosts == 1 or not algorithm or curve.algorithm in ("", algorithm))
    ]


def evidence(setting: EstimateInputs, known: Reference) -> MeasuredCurves:
    """The curves for a forecast: a user's own runs of the described system are a calibration."""
    if not known.own or not _is_plain(setting):
        return MeasuredCurves(known)
    return MeasuredCurves(
        known, tuple(curve for curve in known.own if _is_of_system(curve, setting))
    )


def _is_of_system(curve: ReferenceCurve, setting: EstimateInputs) -> bool:
    job = job_of(setting, curve.collective, curve.hosts, curve.per_host)
    return curve.gpu == job.gpu and is_reduced_alike(curve, job) and bool(of_shape([curve], job))


def _is_plain(setting: EstimateInputs) -> bool:
    """Whether the table has runs of such a setting: NCCL chooses, the network has full rate."""
    full_rate = setting.spine.oversubscription == 1 and setting.traffic is None
    return full_rate and setting.may == ALL_ALLOWED


def why_no_job(ran: ComparedRun, known: Reference) -> str:
    """Why no run is of the system and the collective; empty if one is."""
    system = ran.setting.system
    if not ran.job("float", "sum").gpu:
        return f"{system.gpu} is not in the table of GPUs"
    if ran.hosts > 1 and not system.nics:
        return "the NICs of the hosts are unknown"
    if not _of_job(known, ran.job("float", "sum")):
        return f"no published run of {ran.row.name} on {ran.text}"
    return ""


def why_none(ran: ComparedRun, known: Reference, figures: Sequence[Figure]) -> str:
    """Why none of the measured sizes has a run to compare with."""
    reason = why_no_job(ran, known)
    if reason:
        return reason
    curves = _of_job(known, ran.job("float", "sum"))
    sizes = [figure.row.size_bytes for figure in figures]
    if any(curve.busbw(size) for curve in curves for size in sizes):
        return "NCCL's settings change its choice, and published runs are without them"
    smallest = min(curve.sizes[0] for curve in curves)
    largest = max(curve.sizes[-1] for curve in curves)
    sizes_text = format_size(smallest)
    if largest > smallest:
        sizes_text += f" to {format_size(largest)}"
    measured = format_size(max(sizes)) if sizes else "none"
    return f"the runs of {ran.row.name} on {ran.text} have {sizes_text}, not {measured}"


def _median_busbw(curves: Sequence[ReferenceCurve], size_bytes: int) -> float:
    """The median over runs; a run with several curves counts once."""
    runs: dict[str, list[float]] = {}
    for curve in curves:
        runs.setdefault(curve.run, []).append(log(curve.busbw(size_bytes) or 1.0))
    return exp(median(map(fmean, runs.values())))
