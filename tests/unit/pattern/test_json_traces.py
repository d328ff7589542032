"""PyTorch's execution traces, Chakra's JSON, indented JSON, logs without a host, and traces that
are too old.
"""

import json

import pytest
from pattern_records import calls, record

from busbw.core.errors import UsageError


def tensor(number, elements, itemsize=4):
    return [number, number + 1, 0, elements, itemsize, "cuda:0"]


def trace(*nodes, schema="1.1.0-chakra.0.0.4"):
    return json.dumps(
        {"schema": schema, "pid": 7, "time": "2026-01-01", "start_ts": 1, "nodes": list(nodes)}
    ).encode()


def call(name, rank, sent, received, group=(0, 1, 4), kind="Tensor(float)", splits=((), ())):
    values = [sent, 33, ["0", "default_pg"], rank, name, *map(list, splits), *group]
    return {
        "id": 5,
        "name": "record_param_comms",
        "inputs": {"values": values, "shapes": [], "types": [f"GenericList[{kind}]", "Int"]},
        "outputs": {"values": [received], "shapes": [], "types": []},
        "attrs": [],
    }


def test_execution_traces_have_functions_bytes_and_groups():
    pattern = record(
        trace(
            {"id": 1, "name": "aten::add"},
            call("allreduce", 2, [tensor(1, 1024)], [tensor(1, 1024)]),
            call(
                "_allgather_base",
                2,
                tensor(1, 256, 2),
                tensor(3, 1024, 2),
                kind="Tensor(c10::BFloat16)",
            ),
            call("broadcast", 0, [tensor(1, 8, 8)], [tensor(1, 8, 8)], kind="Tensor(long int)"),
            call("wait", 2, [], []),
            call("send", 3, [tensor(1, 10)], [tensor(1, 10)]),
            call(
                "all_to_allv", 2, tensor(1, 16), tensor(5, 16), splits=((4, 4, 4, 4), (4, 4, 4, 4))
            ),
        ),
        names=("et.json",),
    )
    assert calls(pattern) == ["all_reduce", "all_gather", "broadcast", "send", "alltoall"]
    rows = [pattern.rows[call.row] for call in pattern.calls]
    assert [(row.bytes, row.dtype) for row in rows] == [
        (4096, "float"),
        (2048, "bfloat16"),
        (64, "int64"),
        (40, "float"),
        (64, "float"),
    ]
    assert (
        rows[2].root,
        rows[3].peer,
        pattern.header.ranks,
        pattern.comms[0].ranks,
        pattern.comms[0].members,
    ) == (0, 3, [2], 4, [0, 1, 2, 3])
    assert "wait, 1 call" in " ".join(pattern.header.notes)


def test_older_execution_traces_have_no_groups():
    node = {
        "name": "record_param_comms",
        "id": 7,
        "inputs": [tensor(1, 6, 1), 147, 94594, 0, "all_reduce", [], []],
        "input_shapes": [[6]],
        "input_types": ["Tensor(unknown type)", "Int"],
        "outputs": [tensor(1, 6, 1)],
    }
    pattern = record(trace(node, {"name": "record_param_comms", "inputs": ["?"]}, schema="1.0.1"))
    assert [(row.function, row.bytes, row.dtype) for row in pattern.rows] == [
        ("all_reduce", 6, None)
    ]
    assert pattern.header.skipped == 1
    assert any("PyTorch 2.4 and newer write it" in note for note in pattern.header.notes)


def test_addresses_of_groups_differ_between_ranks_and_are_one_communicator():
    def old(address):
        return {
            "name": "record_param_comms",
            "id": 7,
            "inputs": [tensor(1, 6), 147, address, 0, "all_reduce", [], []],
            "input_types": ["Tensor(float)", "Int"],
            "outputs": [tensor(1, 6)],
        }

    files = [trace(old(94389411606704 + rank), old(94694488288208 + rank)) for rank in range(4)]
    pattern = record(*files)
    assert [comm.ranks for comm in pattern.comms] == [4, 4]
    assert [row.calls for row in pattern.rows] == [1, 1]


def test_chakra_json_is_read_as_its_messages():
    coll = {
        "id": "3",
        "name": "x",
        "type": "COMM_COLL_NODE",
        "startTimeMicros": "10",
        "durationMicros": "5",
        "attr": [
            {"name": "comm_type", "int64Val": "2"},
            {"name": "comm_size", "int64Val": "1024"},
            {"name": "is_cpu_op", "boolVal": False},
            {"name": "pg_name", "stringVal": "tp"},
            {"name": "ranks", "int64List": {"values": ["4", "5"]}},
        ],
    }
    send = {
        "name": "y",
        "type": "COMM_SEND_NODE",
        "attr": [{"name": "comm_size", "uint64Val": "32"}, {"name": "comm_dst", "int32Val": 1}],
    }
    parts = [
        {"version": "0.0.4", "attr": []},
        {"id": "1", "name": "z", "type": "COMP_NODE"},
        coll,
        send,
    ]
    data = "".join(json.dumps(part, indent=2) for part in parts).encode()
    pattern = record(data, names=("trace.4.json",))
    assert [(row.function, row.bytes, row.peer) for row in pattern.rows] == [
        ("all_gather", 2048, None),
        ("send", 32, 1),
    ]
    assert (pattern.comms[0].name, pattern.comms[0].members, pattern.calls[0].gpu_us) == (
        "tp",
        [4, 5],
        5.0,
    )
    assert "character" in record(data[:-20], names=("trace.4.json",)).header.notes[0]


def test_the_feeders_graph_is_read_and_sizes_that_are_missing_are_named():
    nodes = [
        {
            "Id": 1,
            "Name": "c",
            "NodeType": 7,
            "runtime": 28,
            "is_cpu_op": False,
            "comm_type": 0,
            "comm_size": 64,
        },
        {"Id": 2, "NodeType": 4},
    ]
    pattern = record(json.dumps({"workload_graph": nodes}).encode(), names=("x.0.json",))
    assert [(row.function, row.bytes, row.gpu_us.total) for row in pattern.rows] == [
        ("all_reduce", 64, 28)
    ]
    with pytest.raises(
        UsageError, match=r"read as Chakra's execution trace as JSON; .* it has no comm_size"
    ):
        record(json.dumps({"workload_graph": [{"Id": 1, "NodeType": 7}]}).encode())


@pytest.mark.parametrize("name", ["inspector_v4.0.jsonl", "inspector_v4.3.jsonl"])
@pytest.mark.parametrize("together", ["one after another", "a list"])
def test_indented_json_of_the_inspector(samples, name, together):
    data = (samples / name).read_bytes()
    objects = [json.loads(line) for line in data.splitlines() if line.strip()]
    text = (
        json.dumps(objects, indent=2)
        if together == "a list"
        else "\n".join(json.dumps(part, indent=2) for part in objects)
    )
    assert record(text.encode()) == record(data)


def test_a_log_of_nccl_without_hosts(samples):
    end = (
        "sendbuff 0x1 recvbuff 0x1 count 64 datatype 7 op 0 root 0 comm 0x{}0 [nranks=2] stream"
        " 0x1\n"
    )
    lines = [
        f"[{gpu}] NCCL INFO AllReduce: opCount {at:x} {end.format(gpu + 1)}"
        for at in range(3)
        for gpu in range(2)
    ]
    pattern = record("".join(lines).encode())
    assert [(row.function, row.bytes, row.calls) for row in pattern.rows] == [
        ("all_reduce", 256, 3)
    ]
    assert any("lines without NCCL's host:process:thread" in note for note in pattern.header.notes)
    bare = record(
        "".join(line.partition("] ")[2] for line in lines if line.startswith("[0]")).encode()
    )
    assert [(row.function, row.calls) for row in bare.rows] == [("all_reduce", 3)]


def test_traces_that_do_not_name_collectives_are_refused_by_their_age():
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "record_param_comms",
        "ts": 1,
        "dur": 80,
        "args": {"External id": 1, "Input Dims": [[]]},
    }
    with pytest.raises(
        UsageError, match=r"read as Trace of torch\.profiler; .*PyTorch 2\.1 and older"
    ):
        record(json.dumps({"schemaVersion": 1, "traceEvents": [event]}).encode())
