"""One rank's file of a job gives the same times as the files of all ranks where groups are equal;
where not, the text states it.
"""

import json
from collections.abc import Callable, Iterator

import pytest
from pattern_records import record

from busbw.core.pattern import Pattern
from busbw.core.pattern_weights import average, coverage, weights
from busbw.model.estimate import EstimateInputs
from busbw.model.patterns import predict_pattern
from busbw.model.systems import parse_system, with_nics

RANKS, TENSOR = 16, 4  # tensor-parallel groups are neighbours, data-parallel ones have a stride
SETTING = EstimateInputs(with_nics(parse_system("h100x4"), "4x400G"))
STEPS = 2
TP_US, DP_US, WORLD_US = 100.0, 900.0, 10.0
Call = tuple[str, list[int], int, float]


def calls(rank: int) -> Iterator[Call]:
    """Group, members, float elements and time of each all_reduce of a rank."""
    tensor = [rank - rank % TENSOR + at for at in range(TENSOR)]
    data = list(range(rank % TENSOR, RANKS, TENSOR))
    for _ in range(STEPS):
        yield from [("tp", tensor, 1 << 20, TP_US)] * 3
        yield "dp", data, 1 << 24, DP_US
    yield "world", list(range(RANKS)), 16, WORLD_US


def kineto(rank: int) -> bytes:
    events: list[dict[str, object]] = []
    for number, (group, members, count, took_us) in enumerate(calls(rank)):
        arguments = {
            "External id": number,
            "Collective name": "allreduce",
            "In msg nelems": count,
            "Out msg nelems": count,
            "dtype": "Float",
            "Group size": len(members),
            "Process Group Name": f"{members[0]}{group}",
            "Process Group Description": group,
            "Process Group Ranks": str(members),
        }
        events.append(
            {
                "cat": "cpu_op",
                "name": "record_param_comms",
                "ts": number,
                "dur": 1.0,
                "args": arguments,
            }
        )
        events.append(
            {
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce",
                "ts": number,
                "dur": took_us,
                "args": {"External id": number},
            }
        )
    info = {"rank": rank, "world_size": RANKS}
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}).encode()


def flight_recorder(rank: int) -> bytes:
    groups = {f"{members[0]}{group}": (group, members) for group, members, _, _ in calls(rank)}
    entries = [
        {
            "record_id": number,
            "process_group": (f"{members[0]}{group}", group),
            "profiling_name": "nccl:all_reduce",
            "collective_seq_id": number,
            "input_sizes": [[count]],
            "output_sizes": [[count]],
            "input_dtypes": ["Float"],
            "duration_ms": took_us / 1e3,
            "state": "completed",
        }
        for number, (group, members, count, took_us) in enumerate(calls(rank))
    ]
    config = {
        name: {"name": name, "desc": group, "ranks": str(members)}
        for name, (group, members) in groups.items()
    }
    return json.dumps(
        {"version": "2.10", "pg_config": config, "entries": entries, "pg_status": {}}
    ).encode()


def clog(rank: int) -> bytes:
    lines = [
        "V|1|base_timestamp=1714234567.890",
        f"new_comm|comm=world|rank={rank}|world_size={RANKS}",
    ]
    for group, members in {
        group: members for group, members, _, _ in calls(rank) if group != "world"
    }.items():
        lines.append(f"split|comm=world|child={group}|ranks={','.join(map(str, members))}")
    for number, (group, _, count, took_us) in enumerate(calls(rank)):
        lines.append(
            f"C{number}|sig|all_reduce|in_count={count}|out_count={count}|dtype=f32|red_op=sum|async_op=f|comm={group}"
        )
        lines += [
            f"C{number}|{kind}|work_id={number}|+{number + after:.6f}"
            for kind, after in (("Q", 0), ("S", 0), ("E", took_us / 1e6))
        ]
    return "\n".join(lines).encode()


def inspector(rank: int) -> bytes:
    lines = []
    for number, (group, members, count, took_us) in enumerate(calls(rank)):
        header = {
            "id": f"{group}{members[0]}",
            "rank": members.index(rank),
            "n_ranks": len(members),
            "comm_name": group,
            "nnodes": len({member // TENSOR for member in members}),
        }
        performance = {
            "coll": "AllReduce",
            "coll_sn": number,
            "coll_msg_size_bytes": 4 * count,
            "coll_exec_time_us": took_us,
            "coll_timing_source": "kernel_gpu",
        }
        metadata = {
            "inspector_output_format_version": "v4.1",
            "hostname": f"h{rank // TENSOR}",
            "pid": rank,
        }
        lines.append(json.dumps({"header": header, "metadata": metadata, "coll_perf": performance}))
    return "\n".join(lines).encode()


def nccl_log(rank: int) -> bytes:
    head = f"h{rank // TENSOR}:{rank}:{rank} [{rank % TENSOR}] NCCL INFO"
    pointers = {"tp": "0x1", "dp": "0x2", "world": "0x3"}
    lines = []
    for group, members in {group: members for group, members, _, _ in calls(rank)}.items():
        comm_text = f"comm {pointers[group]} rank {members.index(rank)}"
        identity = f"0x{len(members):x}{members[0]:02x}{members[1]:02x}"
        hosts = len({member // TENSOR for member in members})
        lines.append(
            f"{head} ncclCommInitRank {comm_text} nranks {len(members)} cudaDev 0 nvmlDev 0 busId 1"
            f" commId {identity} - Init START"
        )
        lines.append(
            f"{head} {comm_text} nRanks {len(members)} nNodes {hosts} localRanks 1 localRank 0 MNNVL 0"
        )
    for number, (group, members, count, _) in enumerate(calls(rank)):
        lines.append(
            f"{head} AllReduce: opCount {number:x} sendbuff 0x1 recvbuff 0x1 count {count} datatype"
            f" 7 op 0 root 0 comm {pointers[group]} [nranks={len(members)}] stream 0x5"
        )
    return "\n".join(lines).encode()


FORMATS: dict[str, Callable[[int], bytes]] = {
    "kineto": kineto,
    "flight_recorder": flight_recorder,
    "clog": clog,
    "inspector": inspector,
    "nccl_log": nccl_log,
}


def read(name: str, *ranks: int) -> Pattern:
    return record(
        *(FORMATS[name](rank) for rank in ranks),
        names=tuple(f"{name}_rank_{rank}" for rank in ranks),
    )


def share(pattern: Pattern, size: int) -> float:
    times = [
        weight * (row.gpu_us or row.cpu_us).total
        for row, weight in zip(pattern.rows, weights(pattern), strict=True)
    ]
    return sum(
        time for row, time in zip(pattern.rows, times, strict=True) if row.bytes == size
    ) / sum(times)


@pytest.mark.parametrize("name", FORMATS)
def test_one_rank_and_all_ranks_agree(name: str) -> None:
    all_ranks = read(name, *range(RANKS))
    assert coverage(all_ranks) == []
    expected = predict_pattern(all_ranks, SETTING, "", "")
    assert not expected.without
    for ranks in ([0], [7], [0, 4, 5], list(range(8))):
        part = read(name, *ranks)
        predicted = predict_pattern(part, SETTING, "", "")
        assert predicted.total_s == pytest.approx(expected.total_s, rel=0.02), ranks
        assert f"{len(ranks)} of {RANKS} rank" in coverage(part)[0]
        if name != "nccl_log":  # which has no times
            assert share(part, 1 << 26) == pytest.approx(
                STEPS * DP_US / (STEPS * (3 * TP_US + DP_US) + WORLD_US), rel=1e-3
            )
            assert sum(row.measured_s or 0 for row in predicted.rows) == pytest.approx(
                sum(row.measured_s or 0 for row in expected.rows)
            )


def test_equal_groups_represent_unread_ones() -> None:
    notes = coverage(read("kineto", 0, 4, 5))
    assert notes[0] == "3 of 16 ranks were read, 0,4-5: shares and totals are the average of these"
    assert (
        "2 of 4 groups tp were read, with the same calls: the other 2 groups are taken to be like"
        " them" in notes
    )
    assert average(read("kineto", 0, 4, 5)) == "average of the 3 ranks read"


def test_one_rank_represents_only_itself() -> None:
    notes = coverage(read("kineto", 3))
    assert notes == [
        "1 of 16 ranks was read, rank 3: shares and totals are those of this rank",
        "one rank of each communicator was read: its times include its wait for the other ranks",
    ]
    assert average(read("kineto", 3)) == "rank 3 alone"


def test_groups_that_differ_represent_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = calls
    monkeypatch.setitem(
        globals(), "calls", lambda rank: list(alike(rank))[: None if rank < TENSOR else 2]
    )
    assert (
        "2 of 4 groups tp were read, with different calls: what the others do is unknown"
        in coverage(read("kineto", 0, 4))
    )
