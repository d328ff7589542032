"""Chakra's traces: groups, point-to-point calls, and what is broken."""

from chakra_messages import node, stream, text, varint
from pattern_records import calls, record

from busbw.pattern.readers import chakra


def test_collectives_of_every_rank_are_one_call():
    files = [
        stream(
            node(0, 4),
            node(1, 7, 10, 5 + rank, is_cpu_op=False, comm_type=0, comm_size=1 << 20),
            node(2, 7, comm_type=2, comm_size=1 << 10),
        )
        for rank in range(4)
    ]
    pattern = record(*files, names=tuple(f"all_reduce.{rank}.et" for rank in range(4)))
    assert calls(pattern) == ["all_reduce", "all_gather"]
    assert [(row.bytes, row.count, row.dtype) for row in pattern.rows] == [
        (1 << 20, None, None),
        (4 << 10, None, None),
    ]
    assert (pattern.calls[0].gpu_us, pattern.calls[0].skew_us, pattern.comms[0].ranks) == (
        5.0,
        3.0,
        4,
    )


def test_process_groups_and_point_to_point():
    # version and attributes of schema 1.0
    metadata = text(1, "1.0.0") + text(2, text(1, "schema") + text(29, "1.0.2-chakra.0.0.4"))
    group = {"pg_name": "tp", "group_size": 2, "ranks": [4, 5]}
    data = stream(
        node(1, 7, comm_type=7, comm_size=64, **group),
        node(2, 5, comm_size=32, comm_dst=1),
        node(3, 7, comm_type=9, comm_size=0),
        metadata=metadata,
    )
    pattern = record(data, names=("step.4.et",))
    assert [(row.function, row.bytes, row.peer) for row in pattern.rows] == [
        ("reduce_scatter", 64, None),
        ("send", 32, 1),
    ]
    assert (pattern.comms[0].name, pattern.comms[0].members, pattern.header.ranks) == (
        "tp",
        [4, 5],
        [4],
    )
    assert "barrier, 1 call" in " ".join(pattern.header.notes)


def test_broken_node_and_cut_file_are_counted_and_named():
    data = stream(
        node(1, 7, comm_type=0, comm_size=8),
        node(2, 7, comm_type=0),
        node(3, 7, comm_type=0, comm_size=8),
    )
    pattern = record(data[:-3], names=("x.0.et",))
    assert (pattern.rows[0].calls, pattern.header.skipped) == (1, 2)
    assert pattern.header.notes[0] == "x.0.et: node 2: it has no comm_size"
    assert pattern.header.notes[1].startswith("x.0.et: message 3 at byte ")


def test_numbers_of_the_wire_format():
    assert chakra.varint(varint(300), 0) == (300, 2)
    assert chakra.packed(varint(1) + varint(-1)) == [1, -1]
    assert chakra.integer(chakra.FIXED32, b"\xff\xff\xff\xff") == -1
