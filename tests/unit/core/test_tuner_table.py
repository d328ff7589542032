"""The table for the tuner plugin: what is written is what is read, and every broken line is
named.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.pattern import ALGORITHMS, PROTOCOLS
from busbw.core.tuner_table import HEADER, TunerRule, TunerTable, parse, ranges
from busbw.core.tuning import TUNED, TuningChoice

RULE = "2 * all_reduce 8 8 Ring LL *"
CHOICES = st.builds(
    TuningChoice, st.sampled_from(ALGORITHMS), st.sampled_from(PROTOCOLS), st.integers(0, 64)
)
NOTES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=20).map(
    lambda text: text.replace("#", "")
)


@st.composite
def tables(draw: st.DrawFn) -> TunerTable:
    edges = sorted(draw(st.sets(st.integers(1, 1 << 40), min_size=2, max_size=12)))
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    rules = [
        TunerRule(
            ranks=draw(st.integers(1, 4096)),
            hosts=draw(st.none() | st.integers(1, 512)),
            collective=draw(st.sampled_from(TUNED)),
            first=first,
            last=last,
            choice=draw(CHOICES),
            chunk=draw(st.just(0) | st.integers(4096, 1 << 30)),
            note=draw(NOTES),
        )
        for first, last in pairs
    ]
    return TunerTable(
        rules=rules, about=[("device", draw(NOTES) or "GPU"), ("variable", "NCCL_MIN_NCHANNELS=8")]
    )


@given(tables())
def test_a_table_is_read_as_it_was_written(table: TunerTable) -> None:
    assert parse(table.text(), "file") == table


@given(st.text())
def test_any_other_text_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"^file: "):
        parse(text, "file")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2 * all_reduce 8 8 Ring LL", "has 7 words, a rule has 8 or 9"),
        (
            "2 * all_reduce 8 8 Ring LL * 4095",
            "has chunks of 4095 bytes, the plugin reads 4096 to 1073741824",
        ),
        ("2 * all_reduce 8 8 Ring LL * 4096 1", "has 10 words, a rule has 8 or 9"),
        ("x * all_reduce 8 8 Ring LL *", "needs whole numbers"),
        ("2 0 all_reduce 8 8 Ring LL *", "needs whole numbers"),
        ("2 * all_reduce 8 8 Ring LL 0", "needs whole numbers"),
        ("2 * all_reduce 8 ८ Ring LL *", "needs whole numbers"),
        ("2 * alltoall 8 8 Ring LL *", "has 'alltoall' where broadcast, reduce"),
        ("2 * all_reduce 8 8 ring LL *", "has 'ring' where Tree, Ring"),
        ("2 * all_reduce 8 8 Ring Long *", "has 'Long' where LL, LL128 or Simple belongs"),
        (
            "2 * all_reduce 8 8 Ring LL 2147483648",
            "has 2147483648 channels, the plugin reads up to 2147483647",
        ),
        ("2 * all_reduce 8 4 Ring LL *", "ends before it begins, at 4 bytes"),
        ("about weather fine", "does not say made, device"),
        ("about device", "does not say made, device"),
    ],
)
def test_a_broken_line_is_named(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^file: line 3 {message}"):
        parse(f"{HEADER}\n{RULE}\n{line}\n", "file")


def test_versions_and_overlaps_are_refused() -> None:
    with pytest.raises(UsageError, match="line 1 is not `busbw-tuner-table 1`"):
        parse(f"busbw-tuner-table 2\n{RULE}\n", "file")
    with pytest.raises(UsageError, match="lines 2 and 3 are for the same sizes"):
        parse(f"{HEADER}\n{RULE}\n2 2 all_reduce 4 9 Tree LL *\n", "file")
    assert (
        len(
            parse(
                f"{HEADER}\n{RULE}\n4 2 all_reduce 4 9 Tree LL *\n2 2 reduce 4 9 Ring LL *\n",
                "file",
            ).rules
        )
        == 3
    )


def test_only_a_newline_ends_a_line_as_in_the_plugin() -> None:
    table = parse(f"{HEADER}\r\n{RULE}   # a\x0cb\u2028c\r\n", "file")
    assert [rule.note for rule in table.rules] == ["a\x0cb\u2028c"]


def test_a_choice_holds_up_to_halfway_on_a_logarithmic_scale() -> None:
    ring, tree = TuningChoice("Ring", "LL"), TuningChoice("Tree", "LL", 2)
    assert ranges([(1024, ring), (4096, ring), (16384, None), (65536, tree)]) == [
        (1024, 8192, ring),
        (32769, 65536, tree),
    ]
    assert ranges([(4, ring), (5, tree)]) == [(4, 4, ring), (5, 5, tree)]
    assert ranges([(4, None)]) == []


@given(st.dictionaries(st.integers(1, 1 << 40), st.none() | CHOICES, max_size=8))
def test_measured_sizes_run_with_their_choice(chosen: dict[int, TuningChoice | None]) -> None:
    table_ranges = ranges(chosen.items())
    rules = [
        TunerRule(ranks=2, hosts=None, collective="reduce", first=first, last=last, choice=choice)
        for first, last, choice in table_ranges
    ]
    table = TunerTable(rules=rules)
    assert parse(table.text(), "file") == table
    assert {size: table.choice(2, 1, "reduce", size) for size in chosen} == chosen
