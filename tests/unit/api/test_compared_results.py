"""Results that are no sweeps, compared time by time."""

import pytest
from serving_results import VISITS, backends, moe, overlap

import busbw
from busbw.core.comparison import Comparison, ComparisonVerdict
from busbw.core.errors import UsageError
from busbw.core.result import Outcome
from busbw.history import comparison_text
from busbw.pattern.replay.kind import Replay, ReplayResult, ReplaySpec

SAME, SLOWER = ComparisonVerdict.SAME, ComparisonVerdict.SLOWER


def verdicts(comparison: Comparison) -> dict[str, set[ComparisonVerdict]]:
    found: dict[str, set[ComparisonVerdict]] = {}
    for compared in comparison.cells:
        found.setdefault(compared.key.placement, set()).add(compared.verdict)
    return found


def test_backends_are_compared_by_mode() -> None:
    comparison = busbw.compare(backends(), backends(of_graph=1.4))
    assert verdicts(comparison) == {"nccl": {SAME}, "nccl in a graph of 16": {SLOWER}}
    assert [each.ratio for each in comparison.of(SLOWER)] == [pytest.approx(1.4)] * 3
    shown = comparison_text.text(comparison)
    assert shown.startswith("backends of all_reduce\n")
    assert "placement" not in shown
    assert "largest 1.400x at 1 KiB nccl in a graph of 16" in shown


def test_both_sides_of_an_overlap_are_compared_per_operation() -> None:
    comparison = busbw.compare(overlap(), overlap(beside=1.5))
    assert verdicts(comparison) == {
        "alone, 4 CTAs": {SAME},
        "beside load, 4 CTAs": {SLOWER},
        "load alone, 4 CTAs": {SAME},
        "load beside, 4 CTAs": {SAME},
    }
    assert comparison.cells[0].a_s == pytest.approx(50e-6, rel=0.01)


def test_a_time_that_was_partly_alone_is_not_compared() -> None:
    compared = verdicts(busbw.compare(overlap(uncovered=VISITS), overlap(uncovered=VISITS)))
    assert "beside load, 4 CTAs" not in compared


def test_dispatch_and_its_exchange_are_compared() -> None:
    compared = verdicts(busbw.compare(moe(), moe(exchange=1.3)))
    assert compared == {
        "dispatch": {SAME},
        "dispatch, exchange alone": {SLOWER},
        "combine": {SAME},
        "combine, exchange alone": {SLOWER},
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (backends(), overlap()),
        (backends(), backends(copies=True)),
        (overlap(), overlap(load="copy")),
        (moe(), moe(top_k=4)),
    ],
    ids=["kinds", "copies", "loads", "models"],
)
def test_runs_that_measured_something_else_are_refused(before: Outcome, after: Outcome) -> None:
    with pytest.raises(UsageError, match=r"before measures .*, after measures ") as raised:
        busbw.compare(before, after)
    assert raised.value.hint == "compare runs of one command with the same options"


def test_only_the_options_that_differ_are_named() -> None:
    with pytest.raises(UsageError) as raised:
        busbw.compare(moe(), moe(routing="zipf:1.2"))
    assert str(raised.value) == ("before measures routing uniform, after measures routing zipf:1.2")


def test_a_result_without_such_times_is_refused() -> None:
    replayed = ReplayResult(replay=Replay(spec=ReplaySpec(pattern="p.jsonl")))
    with pytest.raises(UsageError, match=r"after is a replay of p.jsonl, which is not"):
        busbw.compare(backends(), replayed)
