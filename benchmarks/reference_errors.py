"""How far expected times are from the reference curves when each run is left out, and the bands
that follow.

`python benchmarks/reference_errors.py` measures nothing: it predicts every curve of the table
without the curves of its run (and, for `similar systems`, without all of its GPU), and
prints the errors by regime, and the coefficients of the model of several hosts that fit the table
best. `--write` also writes src/busbw/model/reference/bands.json.
"""

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

from busbw.core.sizes import format_size
from busbw.model.forecast import comparable, links_of, unlimited
from busbw.model.hardware import NCCL_PCI, reaches_peers
from busbw.model.nccl.choice import ExpectedChoice, Parts
from busbw.model.nccl.constants import RING
from busbw.model.reference.bands import TABLE, Band, Bands
from busbw.model.reference.curves import Reference, ReferenceCurve, built_in
from busbw.model.reference.described import choice_of, job_of, setting_of
from busbw.model.reference.expected import (
    HOSTS_FIT,
    Coefficients,
    ExpectedBasis,
    ExpectedTime,
    Scope,
    expect,
    pcie_share,
)
from busbw.model.reference.similar import BOARD

ROOT = Path(__file__).resolve().parents[1]
IN_TABLE = ("aiconfigurator",)  # hosts of pcie_hosts.csv whose curves are in the table too
SHARP = "SHARP"  # of a source: by whichever algorithm
COVERAGE = 0.9  # from the 5th to the 95th percentile
SMALL_BYTES = 1 << 16
FROM_BYTES = (1 << 30, 1 << 26, 1 << 20, SMALL_BYTES, 0)
MARGIN, MAX_MARGIN = 2.0, 0.5
FEW_SOURCES = 4  # from which on errors over a network are taken to show on which side the next is
LEAST, LEAST_OF_ONE = 0.04, 0.2
OVER_HOSTS = (Scope.HOSTS, Scope.EFA, Scope.FABRICS, Scope.ALL_PAIRS, Scope.SENDS)
LIMITS = (
    ("one host, same system", (Scope.HOST,), ExpectedBasis.SAME, 1 << 26, "5 %, 15 %, 95 %"),
    ("one host, similar systems", (Scope.HOST,), ExpectedBasis.SIMILAR, 1 << 26, "5 %, 15 %, 90 %"),
    ("several hosts", OVER_HOSTS, ExpectedBasis.MODEL, 1 << 30, "6 %, any, 90 %"),
    ("several hosts", OVER_HOSTS, ExpectedBasis.MODEL, 1 << 26, "any, any, 85 %"),
    ("several hosts", OVER_HOSTS, ExpectedBasis.MODEL, 1 << 20, "any, any, 85 %"),
)
Chosen = dict[tuple[ReferenceCurve, int], ExpectedChoice]
Runs = dict[tuple[str, str], list[float]]  # by source and run
Errors = dict[tuple[Scope, ExpectedBasis, int], Runs]


@dataclass(frozen=True)
class Case:
    """One measured size; `off` is the logarithm of measured busbw relative to the expected."""

    curve: ReferenceCurve
    size_bytes: int
    off: float
    expected: ExpectedTime


def choices_of(curves: Sequence[ReferenceCurve]) -> Chosen:
    """What NCCL's model expects of every size of every curve."""
    chosen = {}
    for curve in curves:
        for size in curve.sizes:
            choice = choice_of(curve, size)
            assert choice is not None, (curve.run, size)
            chosen[curve, size] = choice
    return chosen


def cases(
    curves: Sequence[ReferenceCurve],
    chosen: Chosen,
    known: Callable[[ReferenceCurve], Reference],
    fits: dict[str, Coefficients] | None = None,
) -> Iterator[Case]:
    """Every size of the curves, expected from what `known` leaves of the table, with the
    coefficients of several hosts that `fits` has for a run.
    """
    for curve in curves:
        job, rest, setting = job_of(curve), known(curve), setting_of(curve)
        links = links_of(setting, curve.per_host)
        fit = (fits or {}).get(curve.run, HOSTS_FIT)
        shape = curve.hosts, curve.per_host
        for size, time_us in zip(curve.sizes, curve.times_us, strict=True):
            choice = chosen[curve, size]
            allowed = unlimited(setting, curve.collective, *shape, size)
            alike = comparable(rest, allowed, curve.hosts, choice.algorithm)
            expected = expect(job, size, choice, links, alike, fit)
            yield Case(curve, size, log(expected.time_s / (time_us * 1e-6)), expected)


def all_cases() -> list[Case]:
    """The cases of all curves without their run, of boards without their GPU, and of boards
    without any curve.
    """
    curves = built_in().published
    chosen = choices_of(curves)
    boards = [curve for curve in curves if curve.hosts == 1 and curve.per_host <= BOARD]
    runs = dict.fromkeys(curve.run for curve in curves if curve.hosts > 1)
    fits = {run: fitted(chosen, run) for run in runs}
    no_run = cases(curves, chosen, lambda left: without(lambda curve: curve.run == left.run), fits)
    no_gpu = cases(boards, chosen, lambda left: without(lambda curve: curve.gpu == left.gpu))
    found = [case for case in no_run if _kind(case) != (Scope.HOST, ExpectedBasis.SIMILAR)]
    found += [case for case in no_gpu if _kind(case) == (Scope.HOST, ExpectedBasis.SIMILAR)]
    found += cases(boards, chosen, lambda left: Reference((), {}))
    return found


def _kind(case: Case) -> tuple[Scope, ExpectedBasis]:
    return case.expected.scope, case.expected.basis


def without(left_out: Callable[[ReferenceCurve], bool]) -> Reference:
    """The table without some curves."""
    return Reference(tuple(curve for curve in built_in().published if not left_out(curve)), {})


def by_regime(found: Sequence[Case]) -> Errors:
    """The errors of each regime and run. Several hosts are one regime whatever an answer rests on,
    as are hosts with PCIe and racks: runs of one shape differ as much as the model does. Of
    reduction in the network's switches there is no model.
    """
    errors: Errors = defaultdict(lambda: defaultdict(list))
    for case in found:
        if case.curve.algorithm == SHARP:
            continue
        scope = case.expected.scope
        one_regime = case.curve.hosts > 1 or scope in (Scope.PCIE, Scope.DOMAIN)
        basis = ExpectedBasis.MODEL if one_regime else case.expected.basis
        start = next(start for start in FROM_BYTES if case.size_bytes >= start)
        errors[scope, basis, start][case.curve.source, case.curve.run].append(case.off)
    for row in pcie_hosts():
        if row["host"] not in IN_TABLE:
            off = log(pcie_share_of(row) / pcie_share(row["gpu"], int(row["gpus"])))
            runs = errors[Scope.PCIE, ExpectedBasis.MODEL, 1 << 26]
            runs[row["host"], f"{row['gpu']} {row['gpus']}"].append(off)
    return errors


def limits(runs: Runs, scope: Scope) -> tuple[float, float]:
    """The logarithms between which the share COVERAGE of the next run's errors is expected.

    They are quantiles of all errors, in which each run counts as much as another. They are moved
    outwards, the fewer sources there are the more, for what the next one may show. Clusters differ
    more than hosts do: few of them do not show on which side the next one is.
    """
    ordered = sorted((off, 1 / len(offs)) for offs in runs.values() for off in offs)
    sources = len({source for source, _ in runs})
    least = LEAST + LEAST_OF_ONE / sources
    tail = (1 - COVERAGE) / 2 * len(runs)
    low, high = min(-least, _within(ordered, tail)), max(least, _within(ordered[::-1], tail))
    if sources < FEW_SOURCES and scope in (*OVER_HOSTS, Scope.RACK_PAIRS):
        farthest = max(-low, high) * (1 + min(MARGIN / sources, 2 * MAX_MARGIN))
        return -farthest, farthest
    wider = 1 + min(MARGIN / sources, MAX_MARGIN)
    return low * wider, high * wider


def _within(ordered: Sequence[tuple[float, float]], tail: float) -> float:
    """The first error behind which those before it weigh at least `tail`."""
    weight = 0.0
    for off, share in ordered:
        weight += share
        if weight >= tail:
            return off
    return ordered[-1][0]


def inside(runs: Runs, scope: Scope) -> float:
    """The share of errors within limits that are made without their run; 0 for a single run."""
    if len(runs) < 2:
        return 0.0
    held, points = 0, 0
    for run, offs in runs.items():
        others = {name: other for name, other in runs.items() if name != run}
        low, high = limits(others, scope)
        held += sum(low <= off <= high for off in offs)
        points += len(offs)
    return held / points


def make_bands(errors: Errors) -> Bands:
    """The table of bands, those of larger sizes first. The last one of a regime is for all smaller
    sizes too, where it has some of few KiB, or is the only one.
    """
    rows = []
    starts: dict[tuple[Scope, ExpectedBasis], list[int]] = defaultdict(list)
    for scope, basis, start in errors:
        starts[scope, basis].append(start)
    for (scope, basis, start), runs in sorted(errors.items(), key=lambda item: _order(item[0])):
        own = starts[scope, basis]
        is_last = start == min(own) and (start <= SMALL_BYTES or len(own) == 1)
        low, high = limits(runs, scope)
        off = [abs(exp(-value) - 1) for offs in runs.values() for value in offs]
        rows.append(
            Band(
                scope=scope,
                basis=basis,
                from_bytes=0 if is_last else start,
                low=round(exp(low), 3),
                high=round(exp(high), 3),
                runs=len(runs),
                points=len(off),
                median_error=round(median(off), 3),
                p90_error=round(sorted(off)[int(0.9 * (len(off) - 1))], 3),
                inside=round(inside(runs, scope), 3),
            )
        )
    return Bands(coverage=COVERAGE, rows=rows)


def _order(regime: tuple[Scope, ExpectedBasis, int]) -> tuple[int, int, int]:
    scope, basis, start = regime
    return list(Scope).index(scope), list(ExpectedBasis).index(basis), -start


def text(made: Bands) -> str:
    """The bands as a table."""
    head = ("scope", "rests on", "from", "runs", "points", "median", "p90", "low", "high", "inside")
    lines = [head]
    for row in made.rows:
        shares = (row.median_error, row.p90_error)
        lines.append(
            (
                row.scope,
                row.basis,
                format_size(row.from_bytes),
                str(row.runs),
                str(row.points),
                *(f"{100 * share:.1f} %" for share in shares),
                f"{row.low:.2f}",
                f"{row.high:.2f}",
                f"{100 * row.inside:.0f} %",
            )
        )
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    shown = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in shown) + "\n"


def pcie_shares() -> tuple[dict[int, float], float]:
    """What hosts reach over PCIe of the rate that NCCL plans with: the medians by their GPUs, and
    that of GeForce cards.
    """
    reached: dict[int, list[float]] = defaultdict(list)
    for row in pcie_hosts():
        gpus = int(row["gpus"]) if reaches_peers(row["gpu"]) else 0
        reached[gpus].append(pcie_share_of(row))
    geforce = median(reached.pop(0))
    return {gpus: median(shares) for gpus, shares in sorted(reached.items())}, geforce


def pcie_hosts() -> list[dict[str, str]]:
    """Hosts whose GPUs PCIe joins, and what they reach with large sizes."""
    with (ROOT / "benchmarks/reference_202611/pcie_hosts.csv").open() as lines:
        return list(csv.DictReader(lines))


def pcie_share_of(row: dict[str, str]) -> float:
    """What a host reaches of the rate that NCCL plans with."""
    return float(row["busbw_gb_s"]) * 1e9 / NCCL_PCI[int(row["pcie_gen"])]


def fitted(chosen: Chosen, left_out: str = "") -> Coefficients:
    """The coefficients of several hosts with the smallest absolute errors, without one run. Rings
    of all_reduce, which have others with Simple, and reduction in the network's switches are left
    out.
    """
    points: list[tuple[str, Parts, float]] = []
    for (curve, size), choice in chosen.items():
        ring = curve.collective == "all_reduce" and choice.algorithm == RING
        of_hosts = curve.hosts > 1 and curve.per_host <= BOARD and curve.algorithm != SHARP
        if of_hosts and curve.run != left_out and not ring:
            time_s = curve.time_s(size)
            assert time_s is not None
            points.append((curve.run, choice.parts, time_s))
    sizes_of = Counter(run for run, _, _ in points)
    shares = np.array([1 / sizes_of[run] for run, _, _ in points])  # each run counts once
    columns = zip(*((parts.latency_s, parts.transfer_s) for _, parts, _ in points), strict=True)
    all_parts: Any = Parts(*map(np.array, columns))
    measured_s = np.array([time_s for _, _, time_s in points])

    def loss(fit: Coefficients) -> float:
        return float(shares @ np.abs(np.log(fit.time_s(all_parts) / measured_s)))

    return _descend(loss, HOSTS_FIT)


def _descend(loss: Callable[[Coefficients], float], start: Coefficients) -> Coefficients:
    """Coordinate descent by factors, which become smaller."""
    best, step = start, 1.2
    while step > 1.01:
        tried = [best]
        for factor in (step, 1 / step):
            tried.append(replace(best, latency=best.latency * factor))
            tried.append(replace(best, fill_s=best.fill_s * factor))
        better = min(tried, key=loss)
        step = step if better is not best else 1 + (step - 1) / 2
        best = better
    return best


@dataclass(frozen=True)
class Summary:
    """The errors of some regimes together."""

    median_error: float
    p90_error: float
    inside: float


def summary(errors: Errors, scopes: Sequence[Scope], basis: ExpectedBasis, start: int) -> Summary:
    """The relative errors of busbw from one size on to the next, and the share of sizes inside."""
    off: list[float] = []
    held = 0.0
    for scope in scopes:
        runs = errors.get((scope, basis, start), {})
        points = sum(map(len, runs.values()))
        held += inside(runs, scope) * points
        off += [abs(exp(-value) - 1) for offs in runs.values() for value in offs]
    off.sort()
    return Summary(median(off), off[int(0.9 * (len(off) - 1))], held / len(off))


def limits_text(errors: Errors) -> str:
    """The limits of median, 90 % of errors and share inside, and what was found."""
    lines = ["limits: median error, 90 % of errors, inside at least"]
    for name, scopes, basis, start, limit in LIMITS:
        row = summary(errors, scopes, basis, start)
        shares = (row.median_error, row.p90_error, row.inside)
        found = ", ".join(f"{100 * share:.1f} %" for share in shares)
        lines.append(f"{name}, from {start >> 20} MiB: {limit}; found {found}")
    jobs = built_in().published
    runs = {curve.run for curve in jobs if curve.hosts > 1}
    lines.append(f"{len(jobs)} curves, {len(runs)} runs of several hosts")
    lines.append(f"largest job {max(curve.ranks for curve in jobs):,} ranks")
    lines.append(f"largest NVLink domain {max(curve.per_host for curve in jobs)} GPUs")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(f"several hosts, fitted to all runs: {fitted(choices_of(built_in().published))}")
    by_gpus, geforce = pcie_shares()
    shares = [f"{100 * share:.0f} % with {gpus} GPUs" for gpus, share in by_gpus.items()]
    shares.append(f"{100 * geforce:.0f} % with GeForce")
    print(f"one host, PCIe, of what NCCL plans with: {', '.join(shares)}\n")
    errors = by_regime(all_cases())
    made = make_bands(errors)
    print(text(made))
    print(limits_text(errors), end="")
    if "--write" in sys.argv:
        path = ROOT / "src" / "busbw" / "model" / "reference" / TABLE
        path.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
