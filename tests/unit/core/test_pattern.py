"""The record busbw.pattern/1: what is written is read back, and a broken file keeps what can be
read.
"""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.pattern import ALGORITHMS, FUNCTIONS, PROTOCOLS, Header, Pattern, algbw_bytes
from busbw.pattern import pattern_lines
from busbw.pattern.collector import Arguments, CallTally

small = st.none() | st.integers(0, 1 << 40)
times = st.none() | st.floats(0, 1e9)


@st.composite
def patterns(draw):
    tally = CallTally(Header(source="test", world=8), ordered=draw(st.booleans()))
    comms = [
        tally.add_comm(draw(st.integers(1, 8)), draw(st.text(max_size=5)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    for _ in range(draw(st.integers(0, 20))):
        arguments = Arguments(
            draw(st.sampled_from(comms)),
            draw(st.sampled_from(FUNCTIONS)),
            draw(st.integers(0, 1 << 50)),
            draw(small),
            algorithm=draw(st.none() | st.sampled_from(ALGORITHMS)),
            protocol=draw(st.none() | st.sampled_from(PROTOCOLS)),
        )
        tally.add_calls(
            arguments,
            draw(st.integers(1, 3)),
            at_us=draw(times),
            gpu_us=draw(times),
            stream=draw(small),
            predicted_us=draw(times),
        )
    return tally.to_pattern()


def encoded(pattern: Pattern) -> list[bytes]:
    return list(pattern_lines.lines(pattern))


@given(patterns())
def test_pattern_is_read_as_it_was_written(pattern):
    assert pattern_lines.read(encoded(pattern), "file") == pattern


@given(patterns(), st.data())
def test_a_lost_line_loses_only_entries_that_refer_to_it(pattern, data):
    lines = encoded(pattern)
    if len(lines) < 2:
        return
    lost = data.draw(st.integers(1, len(lines) - 1))
    broken = [*lines[:lost], lines[lost][: len(lines[lost]) // 2], *lines[lost + 1 :]]
    read = pattern_lines.read(broken, "file")
    items_read = sum(map(len, (read.comms, read.rows, read.calls)))
    assert items_read + read.header.skipped == len(lines) - 1
    assert read.header.notes[0].startswith(f"line {lost + 1}: ")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"{}\n",
        b'{"type":"header"}\n',
        b'{"type":"call","row":0}\n',
        b"\xff\n",
        b'{"type":"header","schema":"\xff"}\n',
    ],
)
def test_file_without_header_is_refused(first):
    with pytest.raises(UsageError, match=r"dump\.jsonl: line 1 .*busbw\.pattern/1"):
        pattern_lines.read([first], "dump.jsonl")


@pytest.mark.parametrize(
    "change",
    [
        {"function": "teleport"},
        {"dtype": "float3"},
        {"bytes": -1},
        {"calls": 1 << 62},
        {"root": -1},
        {"rank": 2},
        {"peer": 2},
    ],
)
def test_row_with_unknown_names_or_figures_out_of_range_is_counted(change):
    row = {
        "type": "row",
        "id": 0,
        "comm": 0,
        "function": "all_reduce",
        "bytes": 8,
        "calls": 1,
    } | change
    head = [b'{"type":"header","schema":"busbw.pattern/1"}', b'{"type":"comm","id":0,"ranks":2}']
    read = pattern_lines.read([*head, msgspec.json.encode(row)], "file")
    assert (read.header.skipped, read.rows) == (1, [])
    assert read.header.notes[0].startswith("line 3: ")


@pytest.mark.parametrize("members", [b"5", b"5,5", b"5,5,6"])
def test_communicator_with_other_members_than_ranks_is_counted(members):
    head = b'{"type":"header","schema":"busbw.pattern/1"}'
    comm = b'{"type":"comm","id":0,"ranks":2,"members":[%b]}' % members
    read = pattern_lines.read([head, comm], "file")
    assert (read.comms, read.header.notes) == (
        [],
        ["line 2: communicator 0 of 2 ranks does not list each once"],
    )


def test_bytes_follow_nccl_tests():
    assert algbw_bytes("all_gather", 5571584, "half", 8) == 89145344
    assert algbw_bytes("all_reduce", 2, "float", 8) == 8
    assert algbw_bytes("send", 3, "int64", 8) == 24


def test_equal_calls_share_a_row_with_their_times():
    tally = CallTally(Header(), ordered=True)
    comm = tally.add_comm(4)
    for gpu_us in (3.0, 1.0, 8.0):
        tally.add_calls(Arguments(comm, "all_reduce", 64), at_us=10 * gpu_us, gpu_us=gpu_us)
    (row,) = tally.to_pattern().rows
    assert (row.calls, row.first_us, row.last_us) == (3, 10, 80)
    assert (
        row.gpu_us.n,
        row.gpu_us.total,
        row.gpu_us.least,
        row.gpu_us.median,
        row.gpu_us.most,
    ) == (3, 12, 1, 3, 8)
    assert row.cpu_us is None
