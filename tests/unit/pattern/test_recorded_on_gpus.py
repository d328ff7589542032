"""Samples recorded on two H100, read without a GPU: one program as NCCL's log and PyTorch's trace
saw it, and one as busbw's profiler plugin did.
"""

import gzip
import random

import pytest
from pattern_records import calls, record

LOGS = ("nccl_2.28_rank_0.log", "nccl_2.28_rank_1.log")
MIXED = ("profiler_mixed_rank_0.capture.gz", "profiler_mixed_rank_1.capture.gz")
FILES = ("profiler_rank_0.capture.gz", "profiler_rank_1.capture.gz")
# NCCL's log has these by their parts
BUILT_OF_MESSAGES = ("send", "recv", "alltoall", "alltoallv", "gather")


def bytes_moved(pattern):
    """Function, bytes and type of every collective in its order."""
    rows = [pattern.rows[call.row] for call in pattern.calls]
    return [
        (row.function, row.bytes, row.dtype)
        for row in rows
        if row.function not in BUILT_OF_MESSAGES
    ]


def test_log_and_trace_show_the_same_collectives(sample):
    log, trace = sample(*LOGS), sample("kineto_nccl_rank_0.json")
    # The trace begins after DDP has sent the model; the log also holds PyTorch's check of its
    # parameters and the last barrier.
    inside = bytes_moved(log)[-len(bytes_moved(trace)) - 1 : -1]
    assert bytes_moved(trace) == inside
    assert len(inside) == 11
    starts_us = [(call.at_us, call.gpu_at_us) for call in trace.calls]
    assert all(at and gpu_at and at < gpu_at < at + 1e6 for at, gpu_at in starts_us[1:])


@pytest.mark.parametrize("suffix", [".pickle", ".json"])
def test_log_and_flight_recorder_show_the_same_collectives(sample, suffix):
    recorder = sample(*(f"flight_recorder_2.10_nccl_rank_{rank}{suffix}" for rank in (0, 1)))
    recorder_calls = bytes_moved(recorder)
    # PyTorch's check of the parameters before
    checked = next(at for at, call in enumerate(recorder_calls) if call[0] == "broadcast")
    assert (
        recorder_calls[checked:]
        == bytes_moved(sample(*LOGS))[-1 - len(recorder_calls[checked:]) : -1]
    )
    assert (recorder.header.skipped, recorder.header.nccl) == (0, "2.28.9")
    assert all(row.gpu_us for row in recorder.rows)
    assert "barrier" in " ".join(recorder.header.notes)


def test_no_time_follows_the_first_alltoall_of_a_communicator(sample):
    """20 turns of collectives, then alltoall; its sends of a rank to itself make NCCL mix up the
    later times.
    """
    pattern = sample(*MIXED)
    on_world = next(row.comm for row in pattern.rows if row.function == "all_gather")
    counts = {
        (row.function, row.comm == on_world): (row.calls, row.gpu_us.n if row.gpu_us else 0)
        for row in pattern.rows
        if row.bytes > 4
    }
    assert counts["all_gather", True] == counts["broadcast", True] == (20, 1)
    assert counts["all_reduce", False] == (20, 20)
    assert counts["send", True][1] == 0
    assert "after a send of a rank to itself" in " ".join(pattern.header.notes)
    assert max(row.gpu_us.most for row in pattern.rows if row.gpu_us) < 1000


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
    rng, expected = random.Random(1), []
    functions, types = (
        ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"),
        ("float", "half", "bfloat16", "int64", "uint8"),
    )
    for _ in range(300):
        comm, function, kind = rng.randrange(3), rng.choice(functions), rng.choice(types)
        count, root = (
            rng.choice((1, 3, 256, 4096, rng.randrange(1, (1 << 16) // 2))),
            rng.randrange(2),
        )
        expected.append(
            (comm, function, kind, count, root if function in ("broadcast", "reduce") else None)
        )
    rows = [pattern.rows[call.row] for call in pattern.calls]
    order = list(dict.fromkeys(row.comm for row in rows))
    numbers = list(dict.fromkeys(comm for comm, *_ in expected))
    sizes = [
        (numbers[order.index(row.comm)], row.function, row.dtype, row.count, row.root)
        for row in rows
    ]
    assert sizes[:-1] == expected  # the last is the barrier
    assert {row.algorithm for row in rows} == {"Ring"}
    assert pattern.header.nccl == "2.28.9"


def test_cut_profiler_file_keeps_the_other_rank(samples):
    complete, cut = (gzip.decompress((samples / name).read_bytes()) for name in FILES)
    pattern = record(complete, cut[:4000], names=("one", "two"))
    assert (len(calls(pattern)), pattern.header.skipped, pattern.header.ranks) == (301, 1, [0])
