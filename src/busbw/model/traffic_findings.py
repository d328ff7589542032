"""The finding on an uneven alltoallv: the rank that moves the most."""

from busbw.core.alltoallv import KIND, Traffic
from busbw.core.cells import all_figures
from busbw.core.finding import Verdict
from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.model.rule import Conclusion, FindingRule, Run
from busbw.model.series import duration, where_text
from busbw.model.timing_findings import rank_in_words

EVEN, SKEWED = 1.05, 1.25  # the busiest rank's bytes over the mean of all ranks
FIX = (
    "move data from this rank to others: shard the table differently, or send each row once per"
    " batch"
)


def _find_uneven(run: Run) -> Conclusion | None:
    result = run.result
    traffic = result.traffic
    if traffic is None or not result.rows:
        return None
    if traffic.rank_factor < EVEN and not result.spec.counts:
        return None
    name = _name(result, traffic.rank)
    times = f"{traffic.rank_factor:.2f} times the mean of all ranks"
    if traffic.rank_factor < SKEWED:
        message = f"the ranks move about the same: {name} moves the most, {times}"
        return Conclusion(Verdict.PASS, message, _pair(traffic))
    sent, received = format_size(traffic.sent_bytes), format_size(traffic.received_bytes)
    more, less = f"sends {sent} to the others", f"receives {received}"
    if traffic.received_bytes > traffic.sent_bytes:
        more, less = f"receives {received} from the others", f"sends {sent}"
    even = (
        f"spread evenly over equal links, the same data would take {100 / traffic.rank_factor:.0f}"
        " % of the time"
    )
    message = f"{name} {more}, {times}, and {less}: {even}"
    evidence = "; ".join(filter(None, (_pair(traffic), _measured(result))))
    return Conclusion(Verdict.WARN, message, evidence, FIX + _dedup(result.spec.counts))


def _dedup(counts: str) -> str:
    if not counts.startswith(KIND) or "dedup" in counts:
        return ""
    return f"; --counts {counts},dedup shows what that gives"


def _name(result: Result, rank: int) -> str:
    devices = result.world.devices if result.world.groups == 1 else []
    return next(
        (rank_in_words(device) for device in devices if device.rank == rank), f"rank {rank}"
    )


def _pair(traffic: Traffic) -> str:
    pair = f"rank {traffic.sender} to rank {traffic.receiver}, {format_size(traffic.pair_bytes)}"
    return (
        f"hottest pair at {format_size(traffic.size_bytes)}: {pair}, {traffic.pair_factor:.2f}"
        " times the mean of all pairs"
    )


def _measured(result: Result) -> str:
    """Which ranks ended last and first at the largest size, where the ends were measured."""
    timed = [figure for figure in all_figures(result) if figure.cell.ends_s]
    if not timed:
        return ""
    figure = max(timed, key=lambda figure: figure.row.size_bytes)
    ends_s = figure.cell.ends_s or []
    first = min(range(len(ends_s)), key=ends_s.__getitem__)
    last = max(range(len(ends_s)), key=ends_s.__getitem__)
    return (
        f"at {where_text(figure)} rank {last} ends last, after {duration(ends_s[last])},"
        f" rank {first} first, after {duration(ends_s[first])}"
    )


RULES = (
    FindingRule(
        "uneven",
        (Verdict.PASS, Verdict.WARN),
        "alltoallv: the rank that sends or receives the most, the hottest pair, and which ranks"
        " ended last and first. Warns where that rank moves 1.25 times the mean of all ranks or"
        " more",
        _find_uneven,
    ),
)
