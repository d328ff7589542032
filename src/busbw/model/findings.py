"""The findings of a run: all rules in order of importance, and those on bandwidth and latency."""

from collections import Counter

from busbw.core.cells import Figure, peak
from busbw.core.collectives import Collective
from busbw.core.finding import Finding, Verdict
from busbw.core.result import Ideal, Outcome, Result
from busbw.core.sizes import counted, format_size
from busbw.core.topology import Topology
from busbw.model import (
    binding_findings,
    data_findings,
    machine_findings,
    network_findings,
    timing_findings,
    traffic_findings,
)
from busbw.model.bounds import GIVEN, bounds
from busbw.model.fabric import NoFabric, gb
from busbw.model.hardware import plan
from busbw.model.rule import Conclusion, Rule, Run, apply
from busbw.model.series import Series, dips, duration, half_peak, still_rising, where_text
from busbw.model.usable_hardware import Used

OF_PLAN = 0.80  # of the bound with NCCL's constants, or of --ideal
OF_WIRE = 0.70  # of nominal rates, of which protocols leave 76 to 98 %
NCCL = "run with NCCL_DEBUG=INFO to see which transport and algorithm NCCL chose"
NOT_NCCL = "check which transport and which links the ranks use"
ABOVE = 1.01  # timing noise: a bound counts as exceeded from 1 % above


def findings(result: Outcome, topology: Topology) -> list[Finding]:
    """What follows from a run, most important first.

    Of a training or a plan only the network is judged.
    """
    if isinstance(result, Result):
        return apply(RULES, Run(result, topology))
    said = network_findings.paced(result, topology)
    return [network_findings.RULES[0].finding(said)] if said else []


def _one_rank(run: Run) -> Conclusion | None:
    if not run.one_rank:
        return None
    row, groups = run.result.spec.row, run.result.world.groups
    figure = (
        "busbw is 0"
        if row.bus_factor(1) == 0 or row.algbw_units(1) == 0
        else "busbw is that of a copy within the GPU"
    )
    split = f" in each of {groups} groups" if groups > 1 else ""
    return Conclusion(
        Verdict.SKIP,
        f"{figure} with one rank{split}: no data crosses a link",
        fix="run two ranks or more",
    )


def _best(run: Run) -> tuple[Series, Figure] | None:
    """The series with the highest peak, and that peak."""
    tops = [(line, top) for line in run.series if (top := peak(line))]
    return max(tops, key=lambda pair: pair[1].busbw, default=None)


def _at(figure: Figure) -> str:
    return f"{gb(figure.busbw)} GB/s at {where_text(figure)}"


def _bandwidth(run: Run) -> Conclusion | None:
    found, row, use = _best(run), run.result.spec.row, run.use
    if found is None:
        return _nothing_precise(run)
    (best, top), ideal = found, run.result.ideal
    if ideal is None:
        message = f"no ideal, so busbw ({_at(top)}) cannot be judged: {_why_unknown(row, use)}"
        return Conclusion(Verdict.UNKNOWN, message, fix="set the expected busbw with --ideal GB/s")
    planned = (
        None
        if ideal.algorithm == GIVEN or isinstance(use, NoFabric)
        else plan(row, use.fabric, use.hosts[0].gpus[0])
    )
    message = f"busbw reaches {_at(top)}, {_share(top, ideal)}"
    if planned is not None and top.busbw <= planned.busbw * ABOVE:
        message += (
            f", {_percent(top.busbw / planned.busbw)} of the {gb(planned.busbw)} that NCCL plans"
            " with"
        )
    if planned is not None:
        target, least, name = planned, OF_PLAN, "what NCCL plans with"
    else:
        target, least, name = (
            (ideal, OF_PLAN, "--ideal")
            if ideal.algorithm == GIVEN
            else (ideal, OF_WIRE, "the wire")
        )
    evidence = f"{ideal.why}; warns below {_percent(least)} of {name}"
    if top.busbw >= least * target.busbw:
        return Conclusion(Verdict.PASS, message, evidence)
    if still_rising(best) and top is best[-1]:
        why = (
            "it is still rising there"
            if len(best) > 1
            else "one small size does not show the bandwidth"
        )
        return Conclusion(
            Verdict.UNKNOWN, f"{message}; {why}", evidence, "measure larger sizes with -e"
        )
    library = run.result.library
    fix = ("measure larger sizes with -e; then " if len(best) == 1 else "") + (
        NCCL if library.nccl or library.engine == "nccl" else NOT_NCCL
    )
    return Conclusion(Verdict.WARN, message, evidence, fix)


def _nothing_precise(run: Run) -> Conclusion | None:
    """Where data was exchanged, but no cell reached its precision."""
    count = sum(map(len, run.all_series))
    if not count:
        return None
    message = (
        f"busbw cannot be judged: none of {counted(count, 'cell')} reached the requested precision"
    )
    return Conclusion(
        Verdict.UNKNOWN,
        message,
        fix="allow more time with --max-time, or stop other jobs on the machine",
    )


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


def _share(top: Figure, ideal: Ideal) -> str:
    share = f"{_percent(top.busbw / ideal.busbw)} of"
    if ideal.algorithm == GIVEN:
        return f"{share} the {gb(ideal.busbw)} of --ideal"
    return f"{share} the wire's {gb(ideal.busbw)} ({ideal.algorithm} over {ideal.link})"


def why_no_ideal(result: Result, topology: Topology) -> str:
    """Why a run has no ideal busbw: `the ranks run on CPUs`."""
    return _why_unknown(result.spec.row, Run(result, topology).use)


def _why_unknown(row: Collective, use: Used | NoFabric) -> str:
    if isinstance(use, NoFabric):
        return use.reason
    if row.ranks_power_of_two and not bounds(row, use.fabric, use.features):
        return f"{row.name} needs a power of two ranks"
    return "no algorithm with a known bound"


def _excluded(run: Run) -> tuple[Figure, list[Ideal], str, str] | None:
    """The peak, the bounds that allow it, and a text and the evidence on those that it exceeds;
    None if it exceeds no known bound.
    """
    best, use = _best(run), run.use
    if best is None or isinstance(use, NoFabric):
        return None
    top = best[1]
    known = bounds(run.result.spec.row, use.fabric, use.features)
    exceeded = [bound for bound in known if top.busbw > ABOVE * bound.busbw]
    text = ", ".join(f"{bound.algorithm} (at most {gb(bound.busbw)})" for bound in exceeded)
    evidence = "; ".join(f"{bound.algorithm}: {bound.why}" for bound in exceeded)
    return (
        (top, [bound for bound in known if bound not in exceeded], text, evidence)
        if exceeded
        else None
    )


def _algorithm(run: Run) -> Conclusion | None:
    top, fits, excluded, evidence = _excluded(run) or (None, [], "", "")
    if top is None or not fits:
        return None
    left = " or ".join(f"{bound.algorithm} ({gb(bound.busbw)})" for bound in fits)
    return Conclusion(
        Verdict.PASS, f"{gb(top.busbw)} GB/s rules out {excluded}; possible: {left}", evidence
    )


def _above_bounds(run: Run) -> Conclusion | None:
    top, fits, excluded, evidence = _excluded(run) or (None, [], "", "")
    if top is None or fits:
        return None
    fix = (
        "check the topology in the result: a link or feature was read incorrectly, or the data took"
        " a path without a model"
    )
    return Conclusion(
        Verdict.WARN, f"busbw ({_at(top)}) is above all bounds: {excluded}", evidence, fix
    )


def _latency(run: Run) -> Conclusion | None:
    best = _best(run)
    if best is None:
        return None
    (line, top), first, half = best, best[0][0], half_peak(*best)
    if half is first:
        return None
    floor = f"{where_text(first)} takes {duration(first.cell.time_s)}"
    if still_rising(line) and top is line[-1]:
        return Conclusion(
            Verdict.PASS,
            f"{floor}; busbw is still rising at {format_size(top.row.size_bytes)}, the largest"
            " size",
        )
    ruled = (
        f"bandwidth-bound from {format_size(half.row.size_bytes)} on, where busbw reaches half of"
        " its peak"
    )
    return Conclusion(Verdict.PASS, f"{floor}; {ruled}")


def _dip(run: Run) -> Conclusion | None:
    """A size that dips in all measured placements: noise affects one, a change of algorithm
    affects all.
    """
    seen = [dip for figures in run.series for dip in dips(figures)]
    measured = Counter(id(figure.row) for figures in run.all_series for figure in figures)
    dipped = Counter(id(figure.row) for figure, _ in seen)
    found = sorted(
        (dip for dip in seen if dipped[id(dip[0].row)] == measured[id(dip[0].row)]),
        key=lambda dip: dip[1],
    )
    if not found:
        return None
    (figure, ratio), others = found[0], len({id(dip.row) for dip, _ in found}) - 1
    more = f"; {counted(others, 'other dip')}" if others else ""
    below = f"{_percent(1 - ratio)} below both neighbors"
    fix = (
        "run again: noise is possible; a dip that stays is where the library changes its algorithm"
    )
    return Conclusion(
        Verdict.WARN, f"busbw of {figure.row.dtype} dips to {_at(figure)}, {below}{more}", fix=fix
    )


RULES = (
    *data_findings.RULES,
    *binding_findings.RULES,
    *timing_findings.RULES,
    *traffic_findings.RULES,
    *machine_findings.RULES,
    *network_findings.RULES,
    Rule("one_rank", (Verdict.SKIP,), "one rank: no data crosses a link", _one_rank),
    Rule(
        "bandwidth",
        (Verdict.PASS, Verdict.WARN, Verdict.UNKNOWN),
        "the peak compared with its bound. Warns below 80 % of NCCL's plan or of `--ideal`, or"
        " below 70 % of the wire if no plan is known; unknown if busbw is still rising at the"
        " largest size, for a single size below 32 MiB, or if no cell reached the requested"
        " precision",
        _bandwidth,
    ),
    Rule(
        "algorithm",
        (Verdict.PASS,),
        "algorithms that allow the peak, and those whose bound it exceeds",
        _algorithm,
    ),
    Rule(
        "above_bounds",
        (Verdict.WARN,),
        "the peak is above all bounds: wrong topology, or a path without a model",
        _above_bounds,
    ),
    Rule(
        "latency",
        (Verdict.PASS,),
        "the time of the smallest size, and from which size on the sweep is bandwidth-bound (half"
        " of the peak)",
        _latency,
    ),
    Rule(
        "dip",
        (Verdict.WARN,),
        "a size whose busbw is more than a quarter below both neighbors, in all measured"
        " placements",
        _dip,
    ),
)
