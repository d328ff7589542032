"""Data written before a call and expected after it: every element of the receive buffer is
checked exactly once.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.collectives import COLLECTIVES, Collective, collective
from busbw.core.dtypes import dtype
from busbw.core.layouts import InPlace, Layout
from busbw.core.redops import redop
from busbw.engines.base import CollectiveCall, Probe, Region, WrongData
from busbw.measure.verification import Tally, around, expected

ALL = pytest.mark.parametrize("row", COLLECTIVES, ids=lambda row: row.name)


@st.composite
def calls(draw: st.DrawFn, row: Collective) -> tuple[CollectiveCall, int]:
    ranks, itemsize = draw(st.integers(1, 8)), 8
    layout_root = draw(st.integers(0, ranks - 1))
    buffers = row.buffers(draw(st.integers(0, 90)), ranks, itemsize)
    matrix = (
        tuple(tuple(draw(st.integers(0, 4)) for _ in range(ranks)) for _ in range(ranks))
        if row.uneven
        else ()
    )
    send, recv = buffers.send, buffers.recv
    if matrix:
        send, recv = max(map(sum, matrix)), max(map(sum, zip(*matrix, strict=True)))
    in_place = row.in_place_checked and draw(st.booleans())
    call = CollectiveCall(
        row,
        dtype("double"),
        redop("sum") if row.reduces else None,
        Layout(buffers.count, ranks, layout_root, matrix),
        send,
        recv,
        in_place,
    )
    return call, draw(st.integers(0, ranks - 1))


@ALL
@given(st.data())
def test_expected_regions_cover_the_buffer_once_in_order(
    row: Collective, data: st.DataObject
) -> None:
    call, rank = data.draw(calls(row))
    end = 0
    for region in expected(call, rank):
        assert region.offset == end
        assert region.length > 0
        end += region.length
    assert end == call.recv


@ALL
@given(st.data())
def test_moves_arrive_and_the_rest_is_untouched(row: Collective, data: st.DataObject) -> None:
    call, rank = data.draw(calls(row))
    arriving = {
        move.dst + i: (move.sources[0][0], move.sources[0][1] + i)
        for move in row.moves(call.layout, rank)
        for i in range(move.length)
    }
    own_first = rank * call.layout.count
    for region in expected(call, rank):
        for i in range(region.length):
            at = region.offset + i
            if at in arriving:
                source, index = arriving[at]
                assert (region.kind, region.first + i) == (
                    "reduced" if row.reduces else "sent",
                    index,
                )
                assert row.reduces or region.rank == source
            elif not call.in_place:
                assert region.kind == "untouched"
            elif row.in_place is InPlace.SAME:
                assert (region.kind, region.rank, region.first + i) == ("sent", rank, at)
            elif row.in_place is InPlace.RECV_IN_SEND:
                assert (region.kind, region.rank, region.first + i) == (
                    "sent",
                    rank,
                    own_first + at,
                )
            elif own_first <= at < own_first + call.layout.count:
                assert (region.kind, region.rank, region.first + i) == (
                    "sent",
                    rank,
                    at - own_first,
                )
            else:
                assert region.kind == "untouched"


def test_ranks_without_a_result_keep_their_buffer() -> None:
    reduce = CollectiveCall(
        collective("reduce"), dtype("float"), redop("sum"), Layout(8, 2, 0), 8, 8, False
    )
    assert expected(reduce, 0) == [Region(0, 8, "reduced")]
    assert expected(reduce, 1) == [Region(0, 8, "untouched")]
    gather = CollectiveCall(
        collective("gather"), dtype("float"), None, Layout(4, 3, 0), 4, 12, True
    )
    assert expected(gather, 1) == [
        Region(0, 4, "untouched"),
        Region(4, 4, "sent", 1, 0),
        Region(8, 4, "untouched"),
    ]


def test_in_place_sentinels_surround_the_ranks_own_part() -> None:
    call = CollectiveCall(collective("all_gather"), dtype("float"), None, Layout(4, 3), 4, 12, True)
    assert around(call, 1) == [Region(0, 4, "untouched"), Region(8, 4, "untouched")]


def test_a_tally_adds_rounds_and_names_ranks() -> None:
    probe, tally = Probe(1, dtype("int8"), None, 2), Tally()
    tally.add([4, 5], [WrongData(0), WrongData(3, 7, b"\x01", b"\xff")], probe)
    tally.add([4, 5], [WrongData(0), WrongData(0)], probe)
    tally.add([4, 5], [WrongData(1, 0, b"\x00", b"\x80"), WrongData(1, 1, b"\x02", b"\x03")], probe)
    assert (tally.wrong, tally.bad_rounds) == (5, 2)
    assert [(m.rank, m.offset, m.expected, m.got, m.wrong) for m in tally.mismatches] == [
        (5, 7, "1", "-1", 3), (4, 0, "0", "-128", 1), (5, 1, "2", "3", 1),
    ]  # fmt: skip
    assert Tally().mismatches == []


def test_a_wrong_sign_of_zero_is_detected() -> None:
    probe, tally = Probe(1, dtype("half"), None, 1), Tally()
    tally.add([0], [WrongData(1, 0, b"\x00\x00", b"\x00\x80")], probe)
    assert (tally.mismatches[0].expected, tally.mismatches[0].got) == ("0.0", "-0.0")
