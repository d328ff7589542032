"""Samples recorded on two H100: one program as NCCL's log and PyTorch's trace saw it, and one as busbw's profiler plugin did."""

import gzip
import random

from pattern_records import calls, record

LOGS = ("nccl_2.28_rank_0.log", "nccl_2.28_rank_1.log")
FILES = ("profiler_rank_0.capture.gz", "profiler_rank_1.capture.gz")
BUILT_OF_MESSAGES = ("send", "recv", "alltoall", "alltoallv", "gather")  # NCCL's log has these by their parts


def moved(pattern):
    """Function, bytes and type of every collective in its order."""
    rows = [pattern.rows[call.row] for call in pattern.calls]
    return [(row.function, row.bytes, row.dtype) for row in rows if row.function not in BUILT_OF_MESSAGES]


def test_log_and_trace_show_the_same_collectives(sample):
    log, trace = sample(*LOGS), sample("kineto_nccl_rank_0.json")
    # The trace begins after DDP has sent the model; the log also holds PyTorch's check of its parameters and the last barrier.
    inside = moved(log)[-len(moved(trace)) - 1 : -1]
    assert moved(trace) == inside
    assert len(inside) == 11


def test_log_of_two_ranks_names_members_roots_and_operators(sample):
    log = sample(*LOGS)
    assert [comm.members for comm in log.comms] == [[0, 1]] * 3
    assert {row.root for row in log.rows if row.function == "broadcast"} == {0, 1}
    assert {row.op for row in log.rows if row.function == "all_reduce"} == {"sum", "max"}
    assert {row.algorithm for row in log.rows if row.function == "all_reduce"} == {"Ring"}
    assert log.header.skipped == 0


def test_profiler_files_hold_the_script_that_was_run(sample):
    """The script is that of benchmarks/capture_app.py, whose seed is 1."""
    pattern = sample(*FILES)
    dice, expected = random.Random(1), []
    functions, types = (
        ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"),
        ("float", "half", "bfloat16", "int64", "uint8"),
    )
    for _ in range(300):
        comm, function, kind = dice.randrange(3), dice.choice(functions), dice.choice(types)
        count, root = dice.choice((1, 3, 256, 4096, dice.randrange(1, (1 << 16) // 2))), dice.randrange(2)
        expected.append((comm, function, kind, count, root if function in ("broadcast", "reduce") else None))
    rows = [pattern.rows[call.row] for call in pattern.calls]
    order = list(dict.fromkeys(row.comm for row in rows))
    numbers = list(dict.fromkeys(comm for comm, *_ in expected))
    found = [(numbers[order.index(row.comm)], row.function, row.dtype, row.count, row.root) for row in rows]
    assert found[:-1] == expected  # the last is the barrier
    assert {row.algorithm for row in rows} == {"Ring"}
    assert pattern.header.nccl == "2.28.9"


def test_cut_profiler_file_keeps_the_other_rank(samples):
    whole, cut = (gzip.decompress((samples / name).read_bytes()) for name in FILES)
    pattern = record(whole, cut[:4000], names=("one", "two"))
    assert (len(calls(pattern)), pattern.header.skipped, pattern.header.ranks) == (301, 1, [0])
