"""The findings of dispatch and combine."""

from busbw.core.finding import RunFinding, Verdict
from busbw.core.sizes import counted
from busbw.moe.types import ALLTOALLV, PACK, REDUCE, MoeResult, MoeRow
from busbw.moe.volumes import COMBINE, DISPATCH

DATA, PHASE, IMBALANCE = "moe_data", "moe_phase", "moe_imbalance"
# of the reference page: verdict and meaning
MOE_FINDINGS = {
    DATA: (
        Verdict.FAIL,
        "of `busbw moe`: rows arrived in a wrong place or with wrong elements, or a weighted sum is"
        " wrong",
    ),
    PHASE: (
        Verdict.WARN,
        "of `busbw moe`: a phase other than the exchange takes over half of the time, so that"
        " faster links would gain little",
    ),
    IMBALANCE: (
        Verdict.WARN,
        "of `busbw moe`: a rank receives over 1.5 times as many rows as the mean, and the others"
        " wait for it",
    ),
}
ONE_RANK = RunFinding(
    "one_rank",
    Verdict.SKIP,
    "one rank: no data crosses a link, and `exchange` is a copy in its memory",
    fix="run two ranks or more",
)
MAX_IMBALANCE = 1.5
MAX_PHASE_SHARE = 0.5
FUSED = ((DISPATCH, PACK), (COMBINE, REDUCE))  # what DeepEP does while it sends


def findings(result: MoeResult) -> list[RunFinding]:
    """What the rows say, most important first."""
    if result.rows and result.world.ranks == 1:  # phases are then compared with no exchange
        found = [_data(result.rows), ONE_RANK]
    else:
        found = [_data(result.rows), *_phases(result.rows), _imbalance(result.rows)]
    return [finding for finding in found if finding is not None]


def _data(rows: list[MoeRow]) -> RunFinding | None:
    bad = [row for row in rows if row.wrong]
    if not bad:
        return None
    first = bad[0]
    evidence = ""
    if first.mismatches:
        seen = first.mismatches[0]
        evidence = f"rank {seen.rank}, element {seen.offset}: {seen.got} instead of {seen.expected}"
    elements = sum(row.wrong for row in bad)
    return RunFinding(
        DATA,
        Verdict.FAIL,
        f"{counted(elements, 'element')} wrong, first in {first.direction} of {first.tokens}"
        f" tokens by {first.backend}",
        evidence,
        "busbw run alltoallv tells whether the exchange or the GPU's own copies are at fault"
        if first.backend == ALLTOALLV
        else f"busbw moe --backends {ALLTOALLV} tells whether the links are at fault",
    )


def _phases(rows: list[MoeRow]) -> list[RunFinding]:
    """For each backend and direction that has one, the phase with the largest share."""
    largest = {
        (row.backend, row.direction): row for row in sorted(rows, key=lambda row: row.tokens)
    }
    found = []
    for row in largest.values():
        local = {name: time.time_s for name, time in row.phases.items() if name != "exchange"}
        name = max(local, key=lambda phase: local[phase])
        share = local[name] / row.whole.time_s
        if share > MAX_PHASE_SHARE:
            found.append(
                RunFinding(
                    PHASE,
                    Verdict.WARN,
                    f"{name} takes {100 * share:.0f} % of {row.direction} by {row.backend} at"
                    f" {row.tokens} tokens",
                    "work within the memory of each rank, not the links",
                    f"use kernels that {name} while they send, such as those of DeepEP"
                    if (row.direction, name) in FUSED
                    else "let the kernels of the experts read and write rows where they are",
                )
            )
    return found


def _imbalance(rows: list[MoeRow]) -> RunFinding | None:
    dispatched = [row for row in rows if row.direction == DISPATCH]
    worst = max(dispatched, key=lambda row: row.imbalance, default=None)
    if worst is None or worst.imbalance <= MAX_IMBALANCE:
        return None
    return RunFinding(
        IMBALANCE,
        Verdict.WARN,
        f"a rank receives {worst.imbalance:.2f} times the mean of the rows at {worst.tokens}"
        " tokens",
        "computed from the routing",
        "balance the experts' load, or place copies of popular experts on several ranks",
    )
