"""Moves are the reference result: they stay in the buffers, name each destination once, and
compose as the collectives do.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core import layouts
from busbw.core.collectives import COLLECTIVES, Collective, collective
from busbw.core.layouts import Layout, Move

ALL = pytest.mark.parametrize("row", COLLECTIVES, ids=lambda row: row.name)
Element = frozenset[tuple[int, int]]  # the (rank, offset)s whose inputs an element holds, reduced


@st.composite
def layout_of(draw: st.DrawFn, row: Collective) -> Layout:
    ranks = draw(st.integers(1, 9))
    matrix = (
        tuple(tuple(draw(st.integers(0, 5)) for _ in range(ranks)) for _ in range(ranks))
        if row.uneven
        else ()
    )
    return Layout(draw(st.integers(0, 7)), ranks, draw(st.integers(0, ranks - 1)), matrix)


def buffer_lengths(row: Collective, layout: Layout, rank: int) -> tuple[int, int]:
    """Elements of one rank's buffers, from the table's own counts: `count` elements a part and
    16-byte elements are not cut.
    """
    if row.uneven:
        return sum(layout.matrix[rank]), sum(line[rank] for line in layout.matrix)
    count = layout.count if row.buffers is layouts.whole else layout.count * layout.ranks
    buffers = row.buffers(count, layout.ranks, 16)
    assert buffers.count == layout.count
    return buffers.send, buffers.recv


def run(row: Collective, layout: Layout, inputs: list[list[Element]]) -> list[list[Element | None]]:
    """Every rank's receive buffer after the moves; None where nothing arrives."""
    outputs: list[list[Element | None]] = []
    for rank in range(layout.ranks):
        output: list[Element | None] = [None] * buffer_lengths(row, layout, rank)[1]
        for move in row.moves(layout, rank):
            for i in range(move.length):
                parts = [inputs[source][offset + i] for source, offset in move.sources]
                output[move.dst + i] = frozenset().union(*parts)
        outputs.append(output)
    return outputs


def own_inputs(row: Collective, layout: Layout) -> list[list[Element]]:
    return [
        [frozenset({(rank, i)}) for i in range(buffer_lengths(row, layout, rank)[0])]
        for rank in range(layout.ranks)
    ]


@ALL
@given(st.data())
def test_moves_stay_in_the_buffers_and_do_not_overlap(row: Collective, data: st.DataObject) -> None:
    layout = data.draw(layout_of(row))
    for rank in range(layout.ranks):
        arrived: set[int] = set()
        for move in row.moves(layout, rank):
            written_range = set(range(move.dst, move.dst + move.length))
            assert not written_range & arrived
            arrived |= written_range
            for source, offset in move.sources:
                assert 0 <= source < layout.ranks
                assert 0 <= offset <= offset + move.length <= buffer_lengths(row, layout, source)[0]
        receives = (
            (not row.name.endswith("gather") and row.name != "reduce")
            or not row.rooted
            or rank == layout.root
        )
        assert arrived == (set(range(buffer_lengths(row, layout, rank)[1])) if receives else set())


@ALL
@given(st.data())
def test_only_reductions_have_several_sources_all_ranks_once(
    row: Collective, data: st.DataObject
) -> None:
    layout = data.draw(layout_of(row))
    for rank in range(layout.ranks):
        for move in row.moves(layout, rank):
            sources = [source for source, _ in move.sources]
            assert sources == list(range(layout.ranks)) if row.reduces else len(sources) == 1
            assert move.reduced == (row.reduces and layout.ranks > 1)


@given(st.integers(1, 8), st.integers(0, 5))
def test_all_reduce_is_reduce_scatter_then_all_gather(ranks: int, part: int) -> None:
    full, split = Layout(part * ranks, ranks), Layout(part, ranks)
    inputs = own_inputs(collective("all_reduce"), full)
    scattered = run(collective("reduce_scatter"), split, inputs)
    gathered = run(
        collective("all_gather"),
        split,
        [[e for e in output if e is not None] for output in scattered],
    )
    assert gathered == run(collective("all_reduce"), full, inputs)


@given(st.integers(1, 8), st.integers(0, 5), st.data())
def test_rooted_collectives_compose_too(ranks: int, part: int, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, ranks - 1))
    full, split = Layout(part * ranks, ranks, root), Layout(part, ranks, root)
    reduce_inputs = own_inputs(collective("reduce"), full)
    reduced = [
        [e or frozenset() for e in output]
        for output in run(collective("reduce"), full, reduce_inputs)
    ]
    assert run(collective("broadcast"), full, reduced) == run(
        collective("all_reduce"), full, reduce_inputs
    )
    assert run(collective("scatter"), split, reduced) == run(
        collective("reduce_scatter"), split, reduce_inputs
    )
    gathered = [
        [e or frozenset() for e in output]
        for output in run(collective("gather"), split, own_inputs(collective("gather"), split))
    ]
    assert run(collective("broadcast"), full, gathered) == run(
        collective("all_gather"), split, own_inputs(collective("all_gather"), split)
    )


@given(st.data())
def test_alltoall_is_its_own_inverse(data: st.DataObject) -> None:
    row = collective("alltoall")
    layout = data.draw(layout_of(row))
    inputs = own_inputs(row, layout)
    exchanged = [[e for e in output if e is not None] for output in run(row, layout, inputs)]
    assert run(row, layout, exchanged) == inputs


@given(st.data())
def test_alltoallv_is_inverted_by_the_transposed_matrix(data: st.DataObject) -> None:
    row = collective("alltoallv")
    layout = data.draw(layout_of(row))
    transposed = Layout(0, layout.ranks, 0, tuple(zip(*layout.matrix, strict=True)))
    inputs = own_inputs(row, layout)
    exchanged = [[e for e in output if e is not None] for output in run(row, layout, inputs)]
    assert run(row, transposed, exchanged) == inputs


@given(st.integers(1, 8), st.integers(0, 6))
def test_alltoallv_of_equal_parts_is_alltoall(ranks: int, part: int) -> None:
    even, plain = Layout(part, ranks, 0, ((part,) * ranks,) * ranks), Layout(part, ranks)
    for rank in range(ranks):
        assert collective("alltoallv").moves(even, rank) == collective("alltoall").moves(
            plain, rank
        )


@given(st.integers(1, 8), st.integers(1, 6))
def test_n_sendrecv_steps_on_n_ranks_restore_the_data(ranks: int, count: int) -> None:
    row, layout = collective("sendrecv"), Layout(count, ranks)
    start = data = own_inputs(row, layout)
    for _ in range(ranks):
        data = [[e for e in output if e is not None] for output in run(row, layout, data)]
    assert data == start


def test_hypercube_gives_the_result_of_all_gather() -> None:
    layout = Layout(4, 8)
    assert all(
        collective("hypercube").moves(layout, rank) == collective("all_gather").moves(layout, rank)
        for rank in range(8)
    )


def test_moves_match_hand_computed_values() -> None:
    layout = Layout(4, 3, 2)
    assert collective("scatter").moves(layout, 1) == (Move(0, 4, ((2, 4),)),)
    assert collective("reduce_scatter").moves(layout, 1) == (Move(0, 4, ((0, 4), (1, 4), (2, 4))),)
    assert collective("gather").moves(layout, 1) == ()
    assert collective("sendrecv").moves(layout, 0) == (Move(0, 4, ((2, 0),)),)
    assert collective("alltoall").moves(layout, 2) == (
        Move(0, 4, ((0, 8),)),
        Move(4, 4, ((1, 8),)),
        Move(8, 4, ((2, 8),)),
    )


def test_matrix_totals_are_the_largest_row_and_column() -> None:
    assert layouts.matrix_totals([[1, 2], [3, 40]]) == (43, 42)
