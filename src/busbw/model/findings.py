"""What a finished run says, in plain words: right data, how good the bandwidth is, which algorithms it excludes, what is odd. Pure."""

from collections import Counter

from busbw.core.cells import IN_PLACE, Figure, peak
from busbw.core.collectives import Collective
from busbw.core.finding import Finding, Verdict
from busbw.core.result import Ideal, Result
from busbw.core.sizes import format_size
from busbw.core.topology import Topology
from busbw.model import data_findings, machine_findings, network_findings, timing_findings
from busbw.model.bounds import GIVEN, bounds, unknown
from busbw.model.fabric import NoFabric, fabric, gb
from busbw.model.figures import Series, dips, half_peak, still_rising
from busbw.model.payload import plan
from busbw.model.rule import Conclusion, Rule, Run, apply
from busbw.model.world import Used

OF_PLAN = 0.80  # of what NCCL plans with, or of a figure the user gave
OF_WIRE = 0.70  # of nominal rates, of which protocols leave 76 to 98 %
NOT_NCCL = "check which transport and which links the ranks use"
ABOVE = 1.01  # timing noise: a bound counts as exceeded from 1 % above


def findings(result: Result, topology: Topology) -> list[Finding]:
    """What to tell the user about the run, most important first; reads `rows`, `ideal`, `world` and `environment` of the result."""
    return apply(RULES, Run(result, topology))


def _one_rank(run: Run) -> Conclusion | None:
    if not run.one_rank:
        return None
    row, groups = run.result.spec.row, run.result.world.groups
    figure = "busbw is 0" if row.bus_factor(1) == 0 or row.algbw_units(1) == 0 else "busbw is that of a copy within the GPU"
    split = f" in each of {groups} groups" if groups > 1 else ""
    return Conclusion(Verdict.SKIP, f"{figure} because there is one rank{split}: no data crosses a link", fix="run two ranks or more")


def _best(run: Run) -> tuple[Series, Figure] | None:
    """The series with the highest peak, and that peak."""
    tops = [(line, top) for line in run.series if (top := peak(line))]
    return max(tops, key=lambda pair: pair[1].busbw, default=None)


def _at(figure: Figure) -> str:
    return f"{gb(figure.busbw)} GB/s at {format_size(figure.row.size_bytes)}{_placed(figure)}"


def _placed(figure: Figure) -> str:
    """Out of place is the table's main column and goes without saying."""
    return f" {IN_PLACE}" if figure.placement == IN_PLACE else ""


def _bandwidth(run: Run) -> Conclusion | None:
    found, row, use = _best(run), run.result.spec.row, run.use
    if found is None:
        return None
    (best, top), ideal = found, run.result.ideal
    if ideal is None:
        why = _why_unknown(row, use)
        message = f"busbw reaches {_at(top)}; there is nothing to compare it with: {why}"
        return Conclusion(Verdict.UNKNOWN, message, fix="give the busbw you expect with --ideal GB/s")
    planned = None if ideal.algorithm == GIVEN else _plan(row, use)
    message = f"busbw reaches {_at(top)}, {_share(top, ideal)}"
    if planned is not None and top.busbw <= planned.busbw * ABOVE:
        message += f", {_percent(top.busbw / planned.busbw)} of the {gb(planned.busbw)} that NCCL plans with"
    target, least = (planned, OF_PLAN) if planned is not None else (ideal, OF_PLAN if ideal.algorithm == GIVEN else OF_WIRE)
    against = "what NCCL plans with" if planned is not None else "the figure given" if ideal.algorithm == GIVEN else "the wire"
    evidence = f"{ideal.why}; warns below {_percent(least)} of {against}"
    if top.busbw >= least * target.busbw:
        return Conclusion(Verdict.PASS, message, evidence)
    if still_rising(best) and top is best[-1]:
        why = "it was still rising there" if len(best) > 1 else "one small size does not show the bandwidth"
        return Conclusion(Verdict.UNKNOWN, f"{message}; {why}", evidence, "measure larger sizes: raise -e")
    fix = (
        "run with NCCL_DEBUG=INFO and read which transport and algorithm NCCL chose"
        if run.result.library.nccl or run.result.library.engine == "nccl"
        else NOT_NCCL
    )
    if len(best) == 1:
        fix = f"measure larger sizes too: raise -e; then {fix}"
    return Conclusion(Verdict.WARN, message, evidence, fix)


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


def _bounds(run: Run) -> tuple[Figure, list[Ideal], list[Ideal]] | None:
    """The peak, the algorithms that can have carried it, and those whose bound it exceeds; None where no bound is known or exceeded."""
    best, use = _best(run), run.use
    if best is None or isinstance(use, NoFabric):
        return None
    top = best[1]
    known = bounds(run.result.spec.collective, use.topology, use.ranks_per_host, nvls=use.nvls, collnet=use.collnet)
    cannot = [bound for bound in known if top.busbw > ABOVE * bound.busbw]
    return (top, [bound for bound in known if bound not in cannot], cannot) if cannot else None


def _excluded(cannot: list[Ideal]) -> tuple[str, str]:
    excluded = ", ".join(f"not {bound.algorithm} (at most {gb(bound.busbw)})" for bound in cannot)
    return excluded, "; ".join(f"{bound.algorithm}: {bound.why}" for bound in cannot)


def _algorithm(run: Run) -> Conclusion | None:
    found = _bounds(run)
    if found is None or not found[1]:
        return None
    top, fits, cannot = found
    excluded, evidence = _excluded(cannot)
    left = " or ".join(f"{bound.algorithm} ({gb(bound.busbw)})" for bound in fits)
    return Conclusion(Verdict.PASS, f"{gb(top.busbw)} GB/s is {excluded}; it fits {left}", evidence)


def _above_bounds(run: Run) -> Conclusion | None:
    found = _bounds(run)
    if found is None or found[1]:
        return None
    excluded, evidence = _excluded(found[2])
    fix = "a link, a feature or a host was read wrong, or the data took a path that is not modelled"
    return Conclusion(Verdict.WARN, f"{_at(found[0])} is above every bound: {excluded}", evidence, fix)


def _latency(run: Run) -> Conclusion | None:
    best = _best(run)
    if best is None:
        return None
    (line, top), first, half = best, best[0][0], half_peak(*best)
    if half is first:
        return None
    floor = f"{format_size(first.row.size_bytes)} takes {_time(first.cell.time_s)}{_placed(first)}"
    if still_rising(line) and top is line[-1]:
        return Conclusion(Verdict.PASS, f"{floor}; busbw still rises at {format_size(top.row.size_bytes)}, the largest size")
    ruled = f"bandwidth-bound from {format_size(half.row.size_bytes)} on, where busbw reaches half of its peak"
    return Conclusion(Verdict.PASS, f"{floor}; {ruled}")


def _time(seconds: float) -> str:
    micro = seconds * 1e6
    return f"{micro:.3g} us" if micro < 1000 else f"{micro / 1000:.3g} ms"


def _dip(run: Run) -> Conclusion | None:
    """A size that dips in every placement it was measured in: noise hits one, a change of algorithm hits all."""
    every = run.series
    seen = [dip for figures in every for dip in dips(figures)]
    measured = Counter(id(figure.row) for figures in every for figure in figures)
    dipped = Counter(id(figure.row) for figure, _ in seen)
    found = sorted((dip for dip in seen if dipped[id(dip[0].row)] == measured[id(dip[0].row)]), key=lambda dip: dip[1])
    if not found:
        return None
    (figure, ratio), others = found[0], len({id(dip.row) for dip, _ in found}) - 1
    more = f"; {others} more dip{'s' if others > 1 else ''} like it" if others else ""
    below = f"{_percent(1 - ratio)} below both neighbours"
    message = f"busbw of {figure.row.dtype} dips to {_at(figure)}, {below}{more}"
    return Conclusion(
        Verdict.WARN, message, fix="run again: this may be noise; a dip that stays is where the library changes its algorithm"
    )


RULES = (
    *data_findings.RULES, *timing_findings.RULES, *machine_findings.RULES, *network_findings.RULES,
    Rule("one_rank", (Verdict.SKIP,), "one rank: no data crosses a link", _one_rank),
    Rule("bandwidth", (Verdict.PASS, Verdict.WARN, Verdict.UNKNOWN),
         "the peak compared with its bound. Warns below 80 % of NCCL's plan or of `--ideal`, or below 70 % of the wire where no plan is "
         "known; unknown while busbw still rises at the largest size, and for a single size below 32 MiB", _bandwidth),
    Rule("algorithm", (Verdict.PASS,), "algorithms that cannot have carried the peak, and those that fit", _algorithm),
    Rule("above_bounds", (Verdict.WARN,), "the peak is above every bound: something was read wrong, or is not modelled", _above_bounds),
    Rule("latency", (Verdict.PASS,),
         "time of the smallest size, and from which size the sweep is bandwidth-bound (half of the peak) if busbw levels off", _latency),
    Rule("dip", (Verdict.WARN,), "a size more than a quarter below both neighbours, in every placement it was measured in", _dip),
)  # fmt: skip
