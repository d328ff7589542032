"""NCCL's log: calls, choices of three eras, and which pointers are one communicator."""

import pytest
from pattern_records import calls

INIT = (
    "h{r}:1{r}:9 [0] NCCL INFO ncclCommInitRank comm 0x{p} rank {r} nranks 2 cudaDev 0 nvmlDev 0"
    " busId 1 commId {id} - Init COMPLETE\n"
)


def coll(
    rank,
    name="AllReduce",
    op_count=0,
    count=64,
    dtype=7,
    pointer="a",
    ranks=2,
    root=0,
    stream="0x1",
    host=None,
):
    return (
        f"{host or f'h{rank}'}:1{rank}:9 [0] NCCL INFO {name}: opCount {op_count:x} sendbuff 0x1"
        f" recvbuff 0x2 count {count} datatype {dtype} op 0 root {root} comm 0x{pointer}{rank}"
        f" [nranks={ranks}] stream {stream}\n"
    )


def starts(pointer="a", identity="0xbeef"):
    return "".join(INIT.format(r=rank, p=f"{pointer}{rank}", id=identity) for rank in range(2))


def test_pointers_with_one_identity_are_one_communicator(text):
    log = (
        starts()
        + starts("b", "0xf00d")
        + "".join(coll(rank, pointer=pointer) for rank in (0, 1) for pointer in "ab")
    )
    pattern = text(log)
    assert [(comm.ranks, comm.members) for comm in pattern.comms] == [(2, [0, 1]), (2, [0, 1])]
    assert [
        (row.function, row.bytes, row.count, row.dtype, row.op, row.calls) for row in pattern.rows
    ] == [("all_reduce", 256, 64, "float", "sum", 1)] * 2
    assert pattern.header.notes == [] and pattern.header.hosts == ["h0", "h1"]


def test_several_files_are_ranks_of_one_job(text):
    pattern = text(*(starts() + coll(rank) + coll(rank, "AllGather", 1) for rank in (0, 1)))
    assert calls(pattern) == ["all_reduce", "all_gather"] and pattern.header.ranks == [0, 1]


@pytest.mark.parametrize(
    ("line", "algorithm", "protocol", "channels", "predicted_us"),
    [
        ("256 Bytes -> Algo 1 proto 0 time 10.804766", "Ring", "LL", None, 10.804766),
        ("AllReduce: 256 Bytes -> Algo 4 proto 2 time 25.5", "NVLS", "Simple", None, 25.5),
        (
            "AllReduce: 256 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..7}",
            "Tree",
            "LL128",
            8,
            None,
        ),
        (
            "AllReduce: 256 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={4..5}",
            "NVLSTree",
            "Simple",
            2,
            None,
        ),
    ],
)
def test_choices_of_every_era_belong_to_their_call(
    text, line, algorithm, protocol, channels, predicted_us
):
    pattern = text(starts() + coll(0) + coll(1) + f"h0:10:9 [0] NCCL INFO {line}\n")
    (row,) = pattern.rows
    assert (row.algorithm, row.protocol, row.channels, row.predicted_us) == (
        algorithm,
        protocol,
        channels,
        predicted_us,
    )
    assert row.cpu_us is row.gpu_us is None


def test_size_with_several_choices_has_no_choice(text):
    choices = "".join(
        coll(0, op_count=n)
        + f"h0:10:9 [0] NCCL INFO AllReduce: 256 Bytes -> Algo {name} proto LL time 1.0\n"
        for n, name in enumerate(("RING", "TREE"))
    )
    pattern = text(starts() + choices)
    assert pattern.rows[0].algorithm is None and "NCCL chose several" in " ".join(
        pattern.header.notes
    )


def test_calls_with_one_count_were_started_together(text):
    pattern = text(
        starts()
        + coll(0)
        + coll(0, "Send", 1, root=1)
        + coll(0, "Recv", 1, root=1)
        + coll(0, op_count=2)
    )
    assert [call.group for call in pattern.calls] == [None, 0, 0, None]
    assert [(row.function, row.rank, row.peer) for row in pattern.rows[1:]] == [
        ("send", 0, 1),
        ("recv", 0, 1),
    ]


def test_pointer_can_become_another_communicator(text):
    pattern = text(starts() + coll(0) + coll(1) + starts(identity="0xf00d") + coll(0) + coll(1))
    assert len(pattern.comms) == 2


def test_process_with_several_gpus_is_several_ranks(text):
    log = "".join(
        f"h:1:9 [0] NCCL INFO comm 0xa{rank} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank}"
        " commId 0x5 - Init COMPLETE\n"
        for rank in range(2)
    )
    calls_of = "".join(coll(rank, host="h").replace(f":1{rank}:", ":1:") for rank in range(2))
    pattern = text(log + calls_of)
    assert pattern.header.ranks == [0, 1] and pattern.rows[0].calls == 1


def test_parallel_groups_without_their_start_are_distinguished(text):
    log = "".join(
        coll(rank, pointer="a", count=size) for rank, size in ((0, 8), (2, 16), (1, 8), (3, 16))
    )
    pattern = text(log)
    assert [(row.comm, row.bytes, row.calls) for row in pattern.rows] == [(0, 32, 1), (1, 64, 1)]
    assert "add INIT to NCCL_DEBUG_SUBSYS" in pattern.header.notes[0]


def test_broken_and_unknown_calls_are_counted_and_named(text):
    log = (
        starts()
        + coll(0)
        + coll(0, "AllGatherV")
        + coll(0, dtype=99)
        + coll(0)[:120]
        + "\n"
        + "other output\n"
    )
    pattern = text(log)
    assert pattern.header.skipped == 3 and pattern.rows[0].calls == 1
    assert [note.split(": a call")[0] for note in pattern.header.notes[:3]] == [
        f"file_0: line {line}" for line in (4, 5, 6)
    ]


def test_long_log_is_counted_without_its_order(text):
    log = starts() + "".join(coll(rank, op_count=n) for n in range(50) for rank in (0, 1))
    pattern = text(log, limit=20)
    assert not pattern.ordered and pattern.rows[0].calls == 50
    assert "more than 20 calls" in pattern.header.notes[0]


@pytest.mark.parametrize(
    ("name", "functions", "ranks", "skipped"),
    [
        ("nccl_2.4_two_gpus.log", ["all_reduce"] * 4, [0, 1], 0),
        (
            "nccl_2.23_fsdp.log",
            ["all_gather", "all_gather", "broadcast", "broadcast"],
            [0, 1, 2],
            0,
        ),
        ("nccl_2.24_serving.log", ["all_reduce"], [0, 1, 2, 3, 4, 5], 0),
        (
            "nccl_tensor_parallel.log",
            ["all_gather", "reduce_scatter", "all_gather", "all_reduce"],
            [0, 1],
            0,
        ),
        ("nccl_under_ray.log", ["all_reduce", "all_reduce"], [0, 1, 2], 1),
        ("rccl_two_gpus.log", ["all_reduce", "all_reduce"], [0, 1], 0),
    ],
)
def test_recorded_logs(sample, name, functions, ranks, skipped):
    pattern = sample(name)
    assert (calls(pattern), pattern.header.ranks, pattern.header.skipped, len(pattern.comms)) == (
        functions,
        ranks,
        skipped,
        1,
    )


def test_bytes_are_those_that_nccl_printed(sample):
    """NCCL 2.23 printed 37756928 bytes for an all_gather of 2359808 floats from each of 4 ranks."""
    assert sample("nccl_2.23_fsdp.log").rows[0].bytes == 37756928


@pytest.mark.parametrize("junk", ["[", "9", "a"])
def test_long_words_take_no_square_of_time(text, junk):
    """Each line would take minutes if all pairs of its characters were tried."""
    word = junk * 100_000
    lines = [
        f"{word} NCCL INFO AllReduce: opCount 0",
        f"h:1:1 [0] NCCL INFO {word} Bytes -> Algo 1",
    ]
    pattern = text("\n".join([starts(), *lines, f"h:1:1 [0] NCCL INFO {word} opCount", coll(0)]))
    assert pattern.rows[0].calls == 1
