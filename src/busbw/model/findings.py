"""What a finished run says, in plain words: right data, how good the bandwidth is, which algorithms it excludes, what is odd. Pure."""

from collections import Counter

from busbw.core.collectives import Collective
from busbw.core.finding import Finding, Verdict
from busbw.core.result import Ideal, Result
from busbw.core.sizes import format_size
from busbw.core.topology import Topology
from busbw.model.bounds import GIVEN, bounds, unknown
from busbw.model.data_findings import data_findings
from busbw.model.fabric import NoFabric, fabric, gb
from busbw.model.figures import IN_PLACE, Figure, Series, dips, half_peak, peak, series, still_rising
from busbw.model.machine_findings import machine_findings
from busbw.model.network_findings import network_findings
from busbw.model.payload import plan
from busbw.model.timing_findings import timing_findings
from busbw.model.world import Used, used

OF_PLAN = 0.80  # of what NCCL plans with, or of a figure the user gave
OF_WIRE = 0.70  # of nominal rates, of which protocols leave 76 to 98 %
NOT_NCCL = "check which transport and which links the ranks use"
ABOVE = 1.01  # timing noise: a bound counts as exceeded from 1 % above


def findings(result: Result, topology: Topology) -> list[Finding]:
    """What to tell the user about the run, most important first; reads `rows`, `ideal`, `world` and `environment` of the result."""
    row = result.spec.row
    found = data_findings(result) + timing_findings(result) + machine_findings(result) + network_findings(result, topology)
    every = series(result)
    if not every or _one_rank(result, row):
        return found + ([_one_rank_finding(result, row)] if _one_rank(result, row) else [])
    best = max(every, key=lambda figures: peak(figures).busbw)
    if peak(best).busbw <= 0:
        return found
    use = used(result.world, topology, result.environment)
    found.append(_bandwidth(result, row, best, use))
    found += _excluded(row, peak(best), use) if isinstance(use, Used) else []
    found += _latency(best)
    return found + _dip(every)


def _one_rank(result: Result, row: Collective) -> bool:
    return len(result.world.devices) > 0 and result.world.ranks == 1


def _one_rank_finding(result: Result, row: Collective) -> Finding:
    figure = "busbw is 0" if row.bus_factor(1) == 0 or row.algbw_units(1) == 0 else "busbw is that of a copy within the GPU"
    split = f" in each of {result.world.groups} groups" if result.world.groups > 1 else ""
    message = f"{figure} because there is one rank{split}: no data crosses a link"
    return Finding("one_rank", Verdict.SKIP, message, fix="run two ranks or more")


def _at(figure: Figure) -> str:
    return f"{gb(figure.busbw)} GB/s at {format_size(figure.row.size_bytes)}{_placed(figure)}"


def _placed(figure: Figure) -> str:
    """Out of place is the table's main column and goes without saying."""
    return f" {IN_PLACE}" if figure.placement == IN_PLACE else ""


def _bandwidth(result: Result, row: Collective, best: Series, use: Used | NoFabric) -> Finding:
    top, ideal = peak(best), result.ideal
    if ideal is None:
        why = _why_unknown(row, use)
        message = f"busbw reaches {_at(top)}; there is nothing to compare it with: {why}"
        return Finding("bandwidth", Verdict.UNKNOWN, message, fix="give the busbw you expect with --ideal GB/s")
    planned = None if ideal.algorithm == GIVEN else _plan(row, use)
    message = f"busbw reaches {_at(top)}, {_share(top, ideal)}"
    if planned is not None and top.busbw <= planned.busbw * ABOVE:
        message += f", {_percent(top.busbw / planned.busbw)} of the {gb(planned.busbw)} that NCCL plans with"
    target, least = (planned, OF_PLAN) if planned is not None else (ideal, OF_PLAN if ideal.algorithm == GIVEN else OF_WIRE)
    against = "what NCCL plans with" if planned is not None else "the figure given" if ideal.algorithm == GIVEN else "the wire"
    evidence = f"{ideal.why}; warns below {_percent(least)} of {against}"
    if top.busbw >= least * target.busbw:
        return Finding("bandwidth", Verdict.PASS, message, evidence)
    if still_rising(best) and top is best[-1]:
        why = "it was still rising there" if len(best) > 1 else "one small size does not show the bandwidth"
        return Finding("bandwidth", Verdict.UNKNOWN, f"{message}; {why}", evidence, "measure larger sizes: raise -e")
    fix = (
        "run with NCCL_DEBUG=INFO and read which transport and algorithm NCCL chose"
        if result.library.nccl or result.library.engine == "nccl"
        else NOT_NCCL
    )
    if len(best) == 1:
        fix = f"measure larger sizes too: raise -e; then {fix}"
    return Finding("bandwidth", Verdict.WARN, message, evidence, fix)


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


def _share(top: Figure, ideal: Ideal) -> str:
    share = f"{_percent(top.busbw / ideal.busbw)} of"
    if ideal.algorithm == GIVEN:
        return f"{share} the {gb(ideal.busbw)} given"
    return f"{share} the wire's {gb(ideal.busbw)} ({ideal.algorithm} over {ideal.link})"


def _plan(row: Collective, use: Used | NoFabric) -> Ideal | None:
    if isinstance(use, NoFabric):
        return None
    fab = fabric(use.topology, use.ranks_per_host)
    return None if isinstance(fab, NoFabric) or fab.ranks < 2 else plan(row, fab, use.topology.hosts[0].gpus[0])


def _why_unknown(row: Collective, use: Used | NoFabric) -> str:
    if isinstance(use, NoFabric):
        return use.reason
    reason = unknown(use.topology, use.ranks_per_host)
    if reason:
        return reason
    if row.ranks_power_of_two and not bounds(row.name, use.topology, use.ranks_per_host, nvls=use.nvls):
        return f"{row.name} runs on a power of two ranks only"
    return "no bound was computed for this run"


def _excluded(row: Collective, top: Figure, use: Used) -> list[Finding]:
    """Algorithms whose bound the peak exceeds cannot have carried it."""
    fits: list[Ideal] = []
    cannot: list[Ideal] = []
    for bound in bounds(row.name, use.topology, use.ranks_per_host, nvls=use.nvls, collnet=use.collnet):
        (cannot if top.busbw > ABOVE * bound.busbw else fits).append(bound)
    if not cannot:
        return []
    excluded = ", ".join(f"not {bound.algorithm} (at most {gb(bound.busbw)})" for bound in cannot)
    evidence = "; ".join(f"{bound.algorithm}: {bound.why}" for bound in cannot)
    if not fits:
        message = f"{_at(top)} is above every bound: {excluded}"
        fix = "a link, a feature or a host was read wrong, or the data took a path that is not modelled"
        return [Finding("above_bounds", Verdict.WARN, message, evidence, fix)]
    left = " or ".join(f"{bound.algorithm} ({gb(bound.busbw)})" for bound in fits)
    return [Finding("algorithm", Verdict.PASS, f"{gb(top.busbw)} GB/s is {excluded}; it fits {left}", evidence)]


def _latency(figures: Series) -> list[Finding]:
    first, half = figures[0], half_peak(figures)
    if half is first:
        return []
    floor = f"{format_size(first.row.size_bytes)} takes {_time(first.cell.time_s)}{_placed(first)}"
    ruled = f"bandwidth-bound from {format_size(half.row.size_bytes)} on, where busbw reaches half of its peak"
    return [Finding("latency", Verdict.PASS, f"{floor}; {ruled}")]


def _time(seconds: float) -> str:
    micro = seconds * 1e6
    return f"{micro:.3g} us" if micro < 1000 else f"{micro / 1000:.3g} ms"


def _dip(every: list[Series]) -> list[Finding]:
    """A size that dips in every placement it was measured in: noise hits one, a change of algorithm hits all."""
    seen = [dip for figures in every for dip in dips(figures)]
    measured = Counter(id(figure.row) for figures in every for figure in figures)
    dipped = Counter(id(figure.row) for figure, _ in seen)
    found = sorted((dip for dip in seen if dipped[id(dip[0].row)] == measured[id(dip[0].row)]), key=lambda dip: dip[1])
    if not found:
        return []
    (figure, ratio), others = found[0], len({id(dip.row) for dip, _ in found}) - 1
    more = f"; {others} more dip{'s' if others > 1 else ''} like it" if others else ""
    below = f"{_percent(1 - ratio)} below both neighbours"
    message = f"busbw of {figure.row.dtype} dips to {_at(figure)}, {below}{more}"
    return [
        Finding(
            "dip", Verdict.WARN, message, fix="run again: noise is possible; a dip that stays is where the library changes its algorithm"
        )
    ]
