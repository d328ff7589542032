"""Results as curves of a user's own table: refuses those that no one should compare with."""

from collections.abc import Sequence
from statistics import median

import msgspec

from busbw.core.cells import Figure, precise_figures
from busbw.core.errors import UsageError
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sizes import format_size
from busbw.model.gpu_hosts import gpu_hosts
from busbw.model.measured_system import cpus_of
from busbw.model.reference.compared import ComparedRun
from busbw.model.reference.curves import CurveSource, ReferenceCurve, ReferenceTable
from busbw.model.reference.results import curve_of
from busbw.reference.checked import CONTRADICTS, check_curves
from busbw.reference.comparison import ALLTOALLV
from busbw.ui.number_formats import no_headline, time_text

SUM = ("", "none", "sum")
OWN = "own"


def refuse_unhealthy(result: Result, name: str) -> None:
    """UsageError for a result that does not say how fast a healthy system is."""
    engine = result.library.engine
    injected = any(word.split("=")[0] == "--inject" for word in result.argv)
    reason = ""
    if engine == "sim":
        reason = "it was simulated"
    elif engine == "mpi" or cpus_of(result):
        reason = "its ranks ran on CPUs, and the table is of GPUs over NCCL"
    elif injected:
        reason = "a fault was injected"
    elif result.wrong():
        reason = "it has wrong data"
    elif not result.complete:
        reason = "its sweep did not end"
    elif result.errors:
        reason = f"it ended with an error: {result.errors[0]}"
    elif result.world.groups > 1:
        reason = f"{result.world.groups} groups of ranks shared the links"
    elif result.spec.collective == ALLTOALLV:
        reason = "each pair of its ranks has bytes of its own"
    if reason:
        raise UsageError(
            f"{name}: {reason}", "add a complete run of a healthy system: busbw run all_reduce"
        )


def curves_of(result: Result, ran: ComparedRun, run: str, name: str) -> list[ReferenceCurve]:
    """The curves of a result, one for each element type. UsageError that names the file `name` and
    the row for what the table must not hold.
    """
    refuse_unhealthy(result, name)
    system = ran.setting.system
    job = ran.job("float", "sum")
    if job.gpu not in gpu_hosts():
        raise UsageError(
            f"{name}: {system.gpu} is not in the table of GPUs",
            "describe the system, like --system h100x8",
        )
    figures = [figure for figure in precise_figures(result) if figure.row.op in SUM]
    if not figures:
        raise UsageError(f"{name}: {no_headline(result)}", f"busbw show {name}")
    curves = []
    for dtype in dict.fromkeys(figure.row.dtype for figure in figures):
        of_type = [figure for figure in figures if figure.row.dtype == dtype]
        rows = [_row(part, name) for part in _by_size(of_type)]
        spec = msgspec.structs.replace(result.spec, datatype=dtype or "")
        part = msgspec.structs.replace(result, rows=rows, spec=spec)
        curve = curve_of(part, system, (ran.hosts, ran.per_host), run, run)
        if curve is not None:
            fabric = job.fabric if ran.hosts > 1 else ""
            curves.append(msgspec.structs.replace(curve, fabric=fabric))
    source = source_of(result, run, name)
    check_curves([(name, curve) for curve in curves], {run: source})
    return curves


def _by_size(figures: Sequence[Figure]) -> list[list[Figure]]:
    """The figures of each size: out of place, or in place where only these were measured."""
    placements = {figure.placement for figure in figures}
    chosen = figures[0].placement if len(placements) == 1 else "out of place"
    sizes: dict[int, list[Figure]] = {}
    for figure in figures:
        if figure.placement == chosen and figure.row.size_bytes > 0:
            sizes.setdefault(figure.row.size_bytes, []).append(figure)
    return [sizes[size] for size in sorted(sizes)]


def _row(figures: Sequence[Figure], name: str) -> ResultRow:
    """The row of one size, with the median of its times."""
    times = [figure.time_s for figure in figures]
    row = figures[0].row
    if min(times) <= 0 or max(times) > CONTRADICTS * min(times):
        raise UsageError(
            f"{name}: row {format_size(row.size_bytes)} {row.dtype}: {time_text(min(times))} and"
            f" {time_text(max(times))} contradict each other",
            f"times of one job differ by a factor of {CONTRADICTS:g} at most: measure again",
        )
    cell = Cell(median(times), 0.0, 0.0)
    return msgspec.structs.replace(row, out_of_place=cell, in_place=None)


def source_of(result: Result, run: str, name: str) -> CurveSource:
    """Who measured: the hosts of the result, and when."""
    hosts = list(dict.fromkeys(device.host for device in result.world.devices))
    where = f"{hosts[0]}{' and others' if len(hosts) > 1 else ''}" if hosts else "hosts not named"
    return CurveSource(key=run, title=f"{name}, {where}", date=result.start[:10])


def run_name(name: str, taken: set[str]) -> str:
    """A name for a run that no other has: that of the file, with a number if need be."""
    stem = name.rpartition("/")[2]
    for suffix in (".json", ".jsonl", ".txt", ".log", ".table"):
        stem = stem.removesuffix(suffix)
    stem = "stdin" if stem in ("", "-") else stem.replace(":", "-")
    chosen, number = stem, 2
    while chosen in taken:
        chosen, number = f"{stem}-{number}", number + 1
    return chosen


def with_curves(
    table: ReferenceTable, sources: Sequence[CurveSource], curves: Sequence[ReferenceCurve]
) -> ReferenceTable:
    return ReferenceTable(sources=[*table.sources, *sources], curves=[*table.curves, *curves])


def without_run(table: ReferenceTable, run: str) -> ReferenceTable:
    """The table without the curves of a run, and without sources that no curve names."""
    curves = [curve for curve in table.curves if curve.run != run]
    named = {curve.source for curve in curves}
    return ReferenceTable(
        sources=[source for source in table.sources if source.key in named], curves=curves
    )
