"""Checks of curves before they are compared with: what a table or a result must not hold."""

import math
from collections.abc import Iterable, Mapping

from busbw.core.collectives import BY_NAME
from busbw.core.dtypes import BY_NAME as BY_DTYPE
from busbw.core.errors import UsageError, unknown
from busbw.core.sizes import format_size
from busbw.model.estimate import EstimateInputs
from busbw.model.forecast import forecast
from busbw.model.gpu_hosts import gpu_hosts
from busbw.model.reference.curves import CurveSource, ReferenceCurve
from busbw.model.systems import System, parse_system, with_nics
from busbw.ui.number_formats import bandwidth_text, time_text

MOST_OF_LINK = 2.0  # busbw over a GPU's links: NVLS reaches 1.9 times their rate at most
SLOWEST = 100.0  # times the expected time, from SURE_BYTES on
SURE_BYTES = 1 << 20
CONTRADICTS = 3.0  # times that differ by more than this factor are not of one job
MICRO = 1e-6

Job = tuple[str, int, int, str, str, str, str, str]


def check_curves(
    curves: Iterable[tuple[str, ReferenceCurve]], sources: Mapping[str, CurveSource]
) -> None:
    """UsageError, beginning with where a curve stands, for one that cannot be compared with, or
    that repeats or contradicts another one of its job.
    """
    by_job: dict[Job, list[ReferenceCurve]] = {}
    for name, curve in curves:
        _check_names(name, curve, sources)
        _check_points(name, curve)
        _check_units(name, curve)
        others = by_job.setdefault(_job(curve), [])
        for other in others:
            _check_other(name, curve, other)
        others.append(curve)


def _job(curve: ReferenceCurve) -> Job:
    system = curve.gpu, curve.hosts, curve.per_host, curve.nics, curve.fabric
    return (*system, curve.collective, curve.dtype, curve.nccl)


def _check_names(name: str, curve: ReferenceCurve, sources: Mapping[str, CurveSource]) -> None:
    if not curve.run.strip():
        raise UsageError(f"{name}: it has no name", "give each run a name of its own")
    if curve.source not in sources:
        raise UsageError(f"{name}: source '{curve.source}' is not in the file", "add it to sources")
    if curve.collective not in BY_NAME:
        known = {known: known for known in BY_NAME}
        raise unknown("collective", curve.collective, known, f"{name}: ")
    if curve.gpu not in gpu_hosts():
        raise unknown("GPU", curve.gpu, {word: word for word in gpu_hosts()}, f"{name}: ")
    if curve.dtype and curve.dtype not in BY_DTYPE:
        raise unknown("type", curve.dtype, {known: known for known in BY_DTYPE}, f"{name}: ")
    if curve.hosts < 1 or curve.per_host < 1 or curve.ranks < 2:
        raise UsageError(
            f"{name}: {curve.hosts} hosts with {curve.per_host} ranks each",
            "with one rank no data crosses a link: measure two or more",
        )
    if curve.hosts > 1 and not curve.nics:
        raise UsageError(
            f"{name}: the NICs of its {curve.hosts} hosts are unknown",
            "give them, like --nics 8x400G",
        )


def _check_points(name: str, curve: ReferenceCurve) -> None:
    if not curve.sizes or len(curve.sizes) != len(curve.times_us):
        raise UsageError(
            f"{name}: {len(curve.sizes)} sizes and {len(curve.times_us)} times",
            "give one time for each size",
        )
    before = 0
    for size, time_us in zip(curve.sizes, curve.times_us, strict=True):
        if size <= 0 or size == before:
            problem = "stands twice" if size == before else "is no size"
            raise UsageError(f"{name}: {size} bytes {problem}", "give each size once")
        if size < before:
            raise UsageError(
                f"{name}: {format_size(size)} stands after {format_size(before)}",
                "give the sizes in ascending order",
            )
        if not math.isfinite(time_us) or time_us <= 0:
            raise UsageError(
                f"{name}: {format_size(size)} took {time_us:g} us", "times are microseconds above 0"
            )
        before = size


def _check_units(name: str, curve: ReferenceCurve) -> None:
    """UsageError for times that such links cannot have: milliseconds or bits, for example."""
    system = _system(name, curve)
    for size, time_us in zip(curve.sizes, curve.times_us, strict=True):
        busbw = curve.busbw(size) or 0.0
        if busbw > MOST_OF_LINK * system.link:
            raise UsageError(
                f"{name}: {format_size(size)} in {time_text(time_us * MICRO)} is"
                f" {bandwidth_text(busbw)} GB/s, and a GPU's links carry"
                f" {bandwidth_text(system.link)}",
                "times are microseconds and sizes bytes: look at the units",
            )
    _check_slowest(name, curve, system)


def _check_slowest(name: str, curve: ReferenceCurve, system: System) -> None:
    size, took_s = curve.sizes[-1], curve.times_us[-1] * MICRO
    if size < SURE_BYTES:
        return
    row = BY_NAME[curve.collective]
    expected = forecast(EstimateInputs(system), row, curve.hosts, curve.per_host, size)
    if expected is not None and took_s > SLOWEST * expected.time_s:
        raise UsageError(
            f"{name}: {format_size(size)} took {time_text(took_s)}, and"
            f" {time_text(expected.time_s)} are expected",
            "times are microseconds and sizes bytes: look at the units",
        )


def _system(name: str, curve: ReferenceCurve) -> System:
    """The host that a curve was measured on; UsageError if there is no such host."""
    most = gpu_hosts()[curve.gpu].most
    if curve.per_host > most:
        raise UsageError(
            f"{name}: {curve.per_host} ranks on a host, which has at most {most}"
            f" {curve.gpu.upper()}",
            "give the ranks on each host, and the number of hosts",
        )
    system = parse_system(f"{curve.gpu}x{curve.per_host}")
    return with_nics(system, curve.nics) if curve.hosts > 1 else system


def _check_other(name: str, curve: ReferenceCurve, other: ReferenceCurve) -> None:
    """UsageError if a curve of the same job has the same times, or others by far."""
    if curve.run == other.run:
        raise UsageError(
            f"{name}: {curve.collective} of {curve.dtype or 'one type'} stands twice",
            "give each job of a run once",
        )
    if (curve.sizes, curve.times_us) == (other.sizes, other.times_us):
        raise UsageError(
            f"{name}: the same times are there already, as run '{other.run}'", "leave it out"
        )
    for size, time_us in zip(curve.sizes, curve.times_us, strict=True):
        other_s = other.time_s(size)
        if other_s is None:
            continue
        ratio = time_us * MICRO / other_s
        if max(ratio, 1 / ratio) > CONTRADICTS:
            raise UsageError(
                f"{name}: {format_size(size)} took {time_text(time_us * MICRO)}, and"
                f" {time_text(other_s)} in run '{other.run}' of the same job",
                f"times of one job differ by a factor of {CONTRADICTS:g} at most; remove the wrong"
                f" run: busbw reference remove '{other.run}'",
            )
