"""Calls that run at the same time, in a recorded application on another system."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from busbw.cli.predict import command
from busbw.core.errors import UsageError
from busbw.core.pattern import Comm, Header, Pattern, PatternCall, PatternRow
from busbw.model.estimate import EstimateInputs
from busbw.model.overlap import Ratios, Work, apart_s, parse_ratios, span
from busbw.model.patterns import predict_pattern, under_leaves
from busbw.model.spine import Spine
from busbw.model.systems import parse_system, with_nics
from busbw.model.types import PatternPrediction

FUNCTIONS = ("all_reduce", "all_gather", "alltoall")
MIB = 1 << 20
works = st.lists(
    st.builds(
        Work,
        st.sampled_from(FUNCTIONS),
        st.sampled_from([("comm 0",), ("comm 1",), ("comm 2",), ("comm 0", "stream 1")]),
        st.integers(1, 100),
        st.floats(0, 1),
        st.just(0.5),
    ),
    min_size=1,
    max_size=4,
)


def all_pairs(ratio: float) -> Ratios:
    pairs = [*combinations(FUNCTIONS, 2), *zip(FUNCTIONS, FUNCTIONS, strict=True)]
    return {frozenset(pair): ratio for pair in pairs}


@given(works, st.floats(0, 10), st.booleans())
def test_a_span_is_from_the_longest_chain_to_one_after_the_other(
    given_works: list[Work], others_s: float, known: bool
) -> None:
    together = span(given_works, {}, ran_together=known, others_nic_s=others_s)
    slowest = max(
        apart_s([work for work in given_works if chain in work.chains])
        for chain in ("comm 0", "comm 1", "comm 2")
    )
    on_nic = sum(work.nic_s for work in given_works)
    assert slowest <= together.least_s + 1e-9
    assert on_nic <= together.least_s + 1e-9
    assert together.least_s <= together.most_s <= apart_s(given_works) + others_s + 1e-9


@given(works, st.floats(1, 2))
def test_measured_ratios_leave_no_range(given_works: list[Work], ratio: float) -> None:
    together = span(given_works, all_pairs(ratio), ran_together=True)
    assert together.least_s == pytest.approx(together.most_s)
    last = span(given_works, all_pairs(2), ran_together=True)
    assert last.most_s == pytest.approx(apart_s(given_works))
    unknown = span(given_works, all_pairs(ratio), ran_together=False)
    assert unknown.most_s == pytest.approx(apart_s(given_works))


def training(*, apart_us: float = 0.0, timed: bool = True) -> Pattern:
    """4 hosts of 8: tensor parallel in pairs, and data parallel over hosts, which overlap unless
    they are `apart_us`.
    """
    comms = [Comm(pair, 2, "tp", members=[2 * pair, 2 * pair + 1]) for pair in range(16)]
    comms += [Comm(16 + lane, 4, "dp", members=list(range(lane, 32, 8))) for lane in range(8)]
    rows = [PatternRow(pair, pair, "all_gather", 32 * MIB, 20) for pair in range(16)]
    rows += [PatternRow(16 + lane, 16 + lane, "all_reduce", 64 * MIB, 2) for lane in range(8)]
    calls = []
    for step_us in (0.0, 50_000.0):
        for row in rows:
            start_us = step_us + (1000.0 + apart_us if row.id >= 16 else 0.0)
            for number in range(row.calls // 2):
                at_us = start_us + 400.0 * number
                took_us = 2500.0 if row.id >= 16 else 200.0
                started = {"gpu_at_us": at_us, "gpu_us": took_us} if timed else {}
                calls.append(PatternCall(row.id, at_us, **started, stream=int(row.id >= 16)))
    header = Header(source="profiler", world=32, ranks=list(range(32)))
    return Pattern(header, comms, rows, calls)


def predicted(pattern: Pattern, nics: str = "8x400G", *ratios: str) -> PatternPrediction:
    setting = EstimateInputs(with_nics(parse_system("h100x8"), nics))
    return predict_pattern(pattern, setting, "app", "", ratios=parse_ratios(ratios))


def test_calls_that_ran_together_are_a_range_and_others_a_sum() -> None:
    apart, together = predicted(training(apart_us=20_000.0)), predicted(training())
    assert apart.least_s == pytest.approx(apart.most_s) == pytest.approx(apart.total_s)
    assert together.most_s == pytest.approx(apart.total_s)
    reduced_s, gathered_s = (
        sum(row.total_s for row in together.rows if row.function == name)
        for name in ("all_reduce", "all_gather")
    )
    # Of ten all_gathers of a step, the first two had ended and the last ones began when or before
    # the all_reduce ended.
    assert together.total_s - gathered_s < together.least_s < together.total_s
    assert together.least_s >= reduced_s
    assert "calls ran together (all_gather+all_reduce)" in together.notes[0]


def test_without_times_the_overlap_is_unknown() -> None:
    known, unknown = predicted(training()), predicted(training(timed=False))
    assert unknown.least_s <= known.least_s
    assert unknown.most_s == pytest.approx(known.total_s)
    assert "unknown, as 336 of 336 calls have no time on the GPU" in unknown.notes[0]
    ratio = predicted(training(timed=False), "8x400G", "all_gather+all_reduce=1.5")
    assert ratio.most_s == unknown.most_s
    assert ratio.notes[-1].startswith("--together all_gather+all_reduce: the longest total remains")


def test_a_format_without_communicators_says_nothing_of_overlap() -> None:
    rows = [PatternRow(number, 0, "all_reduce", 64 * MIB, 5) for number in range(2)]
    csv = Pattern(Header(source="pattern-csv", world=8), [Comm(0, 8)], rows)
    one_after_the_other = predicted(Pattern(Header(world=8), csv.comms, rows))
    assert one_after_the_other.least_s == pytest.approx(one_after_the_other.most_s)
    assert predicted(csv).least_s < 0.8 * predicted(csv).most_s


def test_a_measured_ratio_takes_the_place_of_the_range() -> None:
    bounds = predicted(training())
    measured = predicted(training(), "8x400G", "all_gather+all_reduce=1.5")
    assert measured.least_s == pytest.approx(measured.most_s)
    assert bounds.least_s < measured.least_s < bounds.most_s
    other = predicted(training(), "8x400G", "alltoall+all_reduce=1.5")
    assert (other.least_s, other.most_s) == (bounds.least_s, bounds.most_s)
    assert other.notes[-1] == "--together all_reduce+alltoall: they did not run together"


def test_data_parallel_groups_on_one_nic_share_it() -> None:
    """Two of eight GPUs use a NIC of 4: their groups, which ran at the same time, take twice as
    long together.
    """
    alone, shared = predicted(training()), predicted(training(), "4x400G")
    assert shared.total_s == pytest.approx(alone.total_s)
    reduced = next(row for row in shared.rows if row.function == "all_reduce")
    assert shared.least_s >= 2 * 2 * reduced.nic_s
    assert shared.least_s > 1.3 * alone.least_s
    assert shared.most_s == pytest.approx(alone.most_s + 2 * reduced.nic_s)
    assert "NICs that several ranks share" in shared.notes[0]


def test_the_hosts_of_a_communicator_decide_what_crosses_the_spine() -> None:
    spine = Spine(2, 4)

    def leaf(hosts: range, function: str = "all_reduce", peer: int | None = None) -> int:
        comm = Comm(0, len(hosts), members=[8 * host for host in hosts])
        row = PatternRow(0, 0, function, 1, 1, rank=None if peer is None else 0, peer=peer)
        return under_leaves(spine, comm, row, 8).hosts_per_leaf

    assert [leaf(range(4)), leaf(range(8)), leaf(range(0, 16, 2)), leaf(range(0, 16, 4))] == [
        4,
        4,
        2,
        1,
    ]
    assert [leaf(range(8), "send", peer) for peer in (1, 4)] == [4, 1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "not two functions and a ratio"),
        ("all_reduce+foo=1.2", "unknown function 'foo'"),
        ("all_reduce+all_gather=0.5", "between 1 and 10"),
        ("send+send=1.2 send+send=1.3", "the pair has two ratios"),
    ],
)
def test_ratios_that_cannot_be(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_ratios(text.split())


def test_the_total_is_printed_as_a_range(recorded: Path) -> None:
    line = ["--system", "h100x8", "--pattern", str(recorded / "pattern" / "training_2x8.jsonl")]
    output = CliRunner().invoke(command, line, standalone_mode=False).output
    answer = json.loads(
        CliRunner().invoke(command, [*line, "--format", "json"], standalone_mode=False).output
    )
    assert 0 < answer["least_s"] < answer["most_s"]
    total = next(part for part in output.splitlines() if part.startswith("total"))
    assert " s to " in total and "which calls overlap is unknown" in output
