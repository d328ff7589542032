"""Findings on the curve of busbw: its peak compared with what is expected, latency, dips."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from busbw.core.cells import Figure, decisive, is_precise, larger_uncertain, surest_peak
from busbw.core.finding import Verdict
from busbw.core.rates import BUSBW_EXAMPLE
from busbw.core.result import Ideal, Result
from busbw.core.sizes import counted, format_size
from busbw.core.topology import Topology
from busbw.model.bounds import GIVEN_LABEL, bounds
from busbw.model.fabric import ON_CPUS, NoFabric, gb, in_lab, lab_burst
from busbw.model.rule import MORE_TIME, Conclusion, FindingRule, Run
from busbw.model.series import Series, dips, duration, half_peak, still_rising, where_text
from busbw.ui.number_formats import NOT_KNOWN

GIVE_IDEAL = f"set the expected busbw, like --ideal {BUSBW_EXAMPLE}"
COMPARE_RUNS = "run again, and compare: busbw compare -2 -1"  # CPUs have no rate to name
OF_PLAN = 0.80  # of the bound with NCCL's constants, or of --ideal
OF_WIRE = 0.70  # of nominal rates, of which protocols leave 76 to 98 %
NCCL = "run with NCCL_DEBUG=INFO to see which transport and algorithm NCCL chose"
IN_LAB = (
    "measure the lab's hosts with busbw link: one may have a lower rate by --rate-of; if all are"
    " slow, the cores of this machine are the limit, so make the lab with a lower --rate"
)
LARGER = "measure larger sizes with -e"
NOT_NCCL = "check which transport and which links the ranks use"
ABOVE = 1.01  # timing noise: a bound counts as exceeded from 1 % above


def _find_one_rank(run: Run) -> Conclusion | None:
    if not run.one_rank:
        return None
    row, groups = run.result.spec.row, run.result.world.groups
    figure = "busbw is that of a copy within the GPU"
    if row.bus_factor(1) == 0 or row.algbw_multiple(1) == 0:
        figure = "busbw is 0"
    split = f" in each of {groups} groups" if groups > 1 else ""
    message = f"{figure} with one rank{split}: no data crosses a link"
    return Conclusion(Verdict.SKIP, message, fix="run two ranks or more")


def _best(run: Run, lines: Sequence[Series]) -> tuple[Series, Figure] | None:
    """The surest peak of all series, and its series."""
    top = surest_peak(run.result, (figure for line in lines for figure in line))
    if top is None:
        return None
    return _line_of(top, lines), top


def _line_of(top: Figure, lines: Sequence[Series]) -> Series:
    return next(line for line in lines if any(figure is top for figure in line))


def _at(run: Run, figure: Figure) -> str:
    """`70.8 GB/s at 1 MiB`, with its interval if it is less precise than requested."""
    text = f"{gb(figure.busbw)} GB/s at {where_text(figure)}"
    if is_precise(run.result, figure):
        return text
    if figure.is_vague:
        return f"{text} ({NOT_KNOWN})"
    low, high = figure.busbw_range
    if high == inf:
        return f"{text} ({gb(low)} or more)" if low else f"{text} (without an interval)"
    return f"{text} ({gb(low)} to {gb(high)})"


def _reached(run: Run, top: Figure) -> str:
    """The peak, and what is larger but less certain."""
    larger = larger_uncertain(run.result)
    more = f"; less certain cells reach {_at(run, larger)}" if larger else ""
    return f"{_at(run, top)}{more}"


def _judge_bandwidth(run: Run) -> Conclusion | None:
    best, ideal = _best(run, run.all_series), run.result.ideal
    if best is None:
        return None
    without = ""
    if run.over_nccl and not (ideal and (_is_given(ideal) or in_lab(ideal))):
        # Imported for NCCL only: a start need not read the table of curves.
        from busbw.model.reference_verdict import judge

        judged = judge(run, *best)
        if isinstance(judged, Conclusion):
            return judged
        without = f"; no reference: {judged}"
    if ideal is None:
        reason, measured = _why_unknown(run), _reached(run, best[1])
        if reason == ON_CPUS:
            message = f"busbw reaches {measured}; nothing is expected of CPUs, so it is not judged"
            return Conclusion(Verdict.SKIP, message, fix=COMPARE_RUNS)
        message = f"no ideal, so busbw ({measured}) cannot be judged: {reason}{without}"
        return Conclusion(Verdict.UNKNOWN, message, fix=GIVE_IDEAL)
    return _judge_by_bound(run, best, ideal, without)


def _judge_by_bound(
    run: Run, best: tuple[Series, Figure], ideal: Ideal, without: str
) -> Conclusion:
    """The peak compared with its bound; `without` says why there is no reference."""
    burst, lines = lab_burst(ideal), run.all_series
    if burst:
        lines = [[figure for figure in line if _size(figure) > burst] for line in lines]
        above = _best(run, lines)
        if above is None:
            return _within_burst(run, best[1], burst)
        best = above
    planned, target, least, name = _target(run, ideal)
    top = decisive(chain.from_iterable(lines), best[1], least * target.busbw)
    line = _line_of(top, lines)
    message = f"busbw reaches {_at(run, top)}, {_share(top, ideal)}"
    if planned is not None and top.busbw <= planned.busbw * ABOVE:
        share = _percent(top.busbw / planned.busbw)
        message += f", {share} of the {gb(planned.busbw)} that NCCL plans with"
    evidence = f"{ideal.why}; warns below {_percent(least)} of {name}{without}"
    reached = top.reaches(least * target.busbw)
    if reached:
        return Conclusion(Verdict.PASS, message, evidence)
    if reached is None:
        message += f"; {_why_undecided(top, least * target.busbw)}"
        return Conclusion(Verdict.UNKNOWN, message, evidence, MORE_TIME)
    return _conclude_below_target(run, line, top, message, evidence)


def _target(run: Run, ideal: Ideal) -> tuple[Ideal | None, Ideal, float, str]:
    """What NCCL plans with, if it is known; the bound to judge by, the share of it that must be
    reached, and its name.
    """
    if _is_given(ideal):
        return None, ideal, OF_PLAN, "--ideal"
    if isinstance(run.use, NoFabric):
        return None, ideal, OF_WIRE, "the wire"
    from busbw.model.payload import plan

    planned = plan(run.result.spec.row, run.use.fabric, run.use.hosts[0].gpus[0])
    if planned is None:
        return None, ideal, OF_WIRE, "the wire"
    return planned, planned, OF_PLAN, "what NCCL plans with"


def _why_undecided(top: Figure, least: float) -> str:
    if top.half_width == inf:
        return f"too few samples ({top.n}) for an interval"
    return f"its interval includes the {gb(least)} that it must reach"


def _conclude_below_target(
    run: Run, line: Series, top: Figure, message: str, evidence: str
) -> Conclusion:
    """A peak below its target: unknown if larger sizes may be faster, else a warning."""
    sure = [figure for figure in line if figure is top or is_precise(run.result, figure)]
    single = len(sure) == 1
    if still_rising(sure) and top is sure[-1]:
        why = "it is still rising there"
        if single:
            why = "one small size does not show the bandwidth"
        fix = LARGER if _is_largest(run, top) else MORE_TIME
        return Conclusion(Verdict.UNKNOWN, f"{message}; {why}", evidence, fix)
    library = run.result.library
    fix = NCCL if library.nccl or library.engine == "nccl" else NOT_NCCL
    if run.result.ideal and in_lab(run.result.ideal):
        fix = IN_LAB
    if single:
        fix = f"{LARGER}; then {fix}"
    return Conclusion(Verdict.WARN, message, evidence, fix)


def _is_given(ideal: Ideal) -> bool:
    return ideal.algorithm == GIVEN_LABEL


def _within_burst(run: Run, top: Figure, burst: int) -> Conclusion:
    """Of a lab where no size above the burst is precise."""
    message = (
        f"busbw ({_at(run, top)}) cannot be judged: the lab passes bursts of"
        f" {format_size(burst)} at full speed"
    )
    sizes = [_size(figure) for line in run.all_series for figure in line]
    fix = MORE_TIME if max(sizes) > burst else LARGER
    return Conclusion(Verdict.UNKNOWN, message, fix=fix)


def _size(figure: Figure) -> int:
    return figure.row.size_bytes


def _is_largest(run: Run, figure: Figure) -> bool:
    """Whether no larger size was measured, precisely or not."""
    return _size(figure) == max(_size(other) for line in run.all_series for other in line)


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


def _share(top: Figure, ideal: Ideal) -> str:
    share = f"{_percent(top.busbw / ideal.busbw)} of"
    if _is_given(ideal):
        return f"{share} the {gb(ideal.busbw)} of --ideal"
    return f"{share} the wire's {gb(ideal.busbw)} ({ideal.algorithm} over {ideal.link})"


def why_no_ideal(result: Result, topology: Topology) -> str:
    """Why a run has no ideal busbw: `the ranks run on CPUs`."""
    return _why_unknown(Run(result, topology))


def _why_unknown(run: Run) -> str:
    row, use = run.result.spec.row, run.use
    if run.result.library.engine == "sim":
        return "simulated GPUs have no links"
    if isinstance(use, NoFabric):
        return use.reason
    if row.ranks_power_of_two and not bounds(row, use.fabric, use.features):
        return f"{row.name} needs a power of two ranks"
    return "no algorithm with a known bound"


@dataclass(frozen=True, slots=True)
class _Excluded:
    """The peak, the bounds that allow it, and texts on those that it exceeds."""

    top: Figure
    fits: list[Ideal]
    text: str
    evidence: str


def _find_excluded(run: Run) -> _Excluded | None:
    """The bounds that the peak exceeds; None if it exceeds no known bound."""
    best, use = _best(run, run.all_series), run.use
    if best is None or isinstance(use, NoFabric):
        return None
    _, top = best
    known = bounds(run.result.spec.row, use.fabric, use.features)
    exceeded = [bound for bound in known if top.busbw_range[0] > ABOVE * bound.busbw]
    if not exceeded:
        return None
    text = ", ".join(f"{bound.algorithm} (at most {gb(bound.busbw)})" for bound in exceeded)
    evidence = "; ".join(f"{bound.algorithm}: {bound.why}" for bound in exceeded)
    return _Excluded(top, [bound for bound in known if bound not in exceeded], text, evidence)


def _find_algorithm(run: Run) -> Conclusion | None:
    excluded = _find_excluded(run)
    if excluded is None or not excluded.fits:
        return None
    possible = " or ".join(f"{bound.algorithm} ({gb(bound.busbw)})" for bound in excluded.fits)
    message = f"{gb(excluded.top.busbw)} GB/s rules out {excluded.text}; possible: {possible}"
    return Conclusion(Verdict.PASS, message, excluded.evidence)


def _find_above_bounds(run: Run) -> Conclusion | None:
    excluded = _find_excluded(run)
    if excluded is None or excluded.fits:
        return None
    message = f"busbw ({_at(run, excluded.top)}) is above all bounds: {excluded.text}"
    fix = (
        "check the topology in the result: a link or feature was read incorrectly, or the data took"
        " a path without a model"
    )
    return Conclusion(Verdict.WARN, message, excluded.evidence, fix)


def _find_latency(run: Run) -> Conclusion | None:
    best = _best(run, run.series)
    if best is None:
        return None
    line, top = best
    smallest, half = line[0], half_peak(line, top)
    if half is smallest:
        return None
    floor = f"{where_text(smallest)} takes {duration(smallest.cell.time_s)}"
    if still_rising(line) and top is line[-1]:
        largest = format_size(top.row.size_bytes)
        rise = f"busbw is still rising at {largest}, the largest size"
        if not _is_largest(run, top):
            rise = f"busbw rises up to {largest}; larger sizes are less precise than requested"
        return Conclusion(Verdict.PASS, f"{floor}; {rise}")
    size = format_size(half.row.size_bytes)
    return Conclusion(
        Verdict.PASS,
        f"{floor}; bandwidth-bound from {size} on, where busbw reaches half of its peak",
    )


def _find_dip(run: Run) -> Conclusion | None:
    """A size that dips in all measured placements: noise affects one, a new algorithm all."""
    candidates = [dip for figures in run.series for dip in dips(figures)]
    measured = Counter(id(figure.row) for figures in run.all_series for figure in figures)
    dipped = Counter(id(figure.row) for figure, _ in candidates)
    rows = {row for row, count in dipped.items() if count == measured[row]}
    confirmed = [dip for dip in candidates if id(dip[0].row) in rows]
    if not confirmed:
        return None
    figure, ratio = min(confirmed, key=lambda dip: dip[1])
    others = len(rows) - 1
    more = f"; {counted(others, 'other dip')}" if others else ""
    below = f"{_percent(1 - ratio)} below both neighbors"
    message = f"busbw of {figure.row.dtype} dips to {_at(run, figure)}, {below}{more}"
    fix = (
        "run again: noise is possible; a dip that stays is where the library changes its algorithm"
    )
    return Conclusion(Verdict.WARN, message, fix=fix)


RULES = (
    FindingRule("one_rank", (Verdict.SKIP,), "one rank: no data crosses a link", _find_one_rank),
    FindingRule(
        "bandwidth",
        (Verdict.PASS, Verdict.WARN, Verdict.UNKNOWN, Verdict.SKIP),
        "over NCCL, busbw compared with runs of the same system and job, the user's own or"
        " published ones: warns below the range that such runs reach. Without a reference, and"
        " with `--ideal`, the peak compared with its bound: warns below 80 % of NCCL's plan or of"
        " `--ideal`, or below 70 % of the wire if no plan is known; unknown if busbw is still"
        " rising at the largest size, for a single size below 32 MiB, or if no confidence interval"
        " lies above what must be reached and one has values on both sides of it. CPUs are not"
        " judged. In a lab with a rate only sizes above its burst are",
        _judge_bandwidth,
    ),
    FindingRule(
        "algorithm",
        (Verdict.PASS,),
        "algorithms that allow the peak, and those whose bound it exceeds",
        _find_algorithm,
    ),
    FindingRule(
        "above_bounds",
        (Verdict.WARN,),
        "the peak is above all bounds: wrong topology, or a path without a model",
        _find_above_bounds,
    ),
    FindingRule(
        "latency",
        (Verdict.PASS,),
        "the time of the smallest size, and from which size on the sweep is bandwidth-bound (half"
        " of the peak)",
        _find_latency,
    ),
    FindingRule(
        "dip",
        (Verdict.WARN,),
        "a size whose busbw is more than a quarter below both neighbors, in all measured"
        " placements",
        _find_dip,
    ),
)
