"""Traces of torch.profiler: arguments from the host's events, durations from the kernels."""

import gzip
import json

import pytest
from pattern_records import record

from busbw.core import gzip_stream
from busbw.core.errors import UsageError
from busbw.core.pattern_weights import coverage
from busbw.pattern.readers import kineto_events
from busbw.pattern.text import table


def arguments(name="allreduce", sent=1024, received=1024, dtype="Float", **fields):
    return {
        "Collective name": name,
        "In msg nelems": sent,
        "Out msg nelems": received,
        "Group size": 2,
        "dtype": dtype,
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1]",
    } | fields


def call(number, ts, **fields):
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": "record_param_comms",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": 9.0,
        "args": {"External id": number, **arguments(**fields)},
    }


def kernel(dur, stream=20, **fields):
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "pid": 0,
        "tid": stream,
        "ts": 500.0,
        "dur": dur,
        "args": {"stream": stream, **fields},
    }


def gpu_event(name, dur, ts=500.0, pid=0, cat="kernel", **fields):
    return kernel(dur) | {"name": name, "ts": ts, "pid": pid, "cat": cat, "args": fields}


CUSTOM = "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)"


def trace(*events, rank=0):
    document = {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": 2,
            "nccl_version": "2.27.5",
        },
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": list(events),
    }
    return json.dumps(document).encode()


def test_kernels_are_joined_by_external_id_or_by_their_launch():
    launch = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernelExC",
        "ts": 4.0,
        "dur": 1.0,
        "args": {"External id": 8, "correlation": 77},
    }
    events = [
        call(7, 1.0),
        call(8, 2.0, name="_allgather_base", sent=512, dtype="BFloat16"),
        launch,
        kernel(30.0, **{"External id": 7}),
        kernel(40.0, correlation=77),
    ]
    pattern = record(
        trace(*events), trace(call(7, 1.0), kernel(35.0, **{"External id": 7}), rank=1)
    )
    assert [(row.function, row.bytes, row.count, row.dtype) for row in pattern.rows] == [
        ("all_reduce", 4096, 1024, "float"),
        ("all_gather", 2048, 512, "bfloat16"),
    ]
    assert [(call.gpu_us, call.cpu_us, call.skew_us, call.stream) for call in pattern.calls] == [
        (30.0, None, 5.0, 0),
        (40.0, None, None, 0),
    ]
    assert (pattern.header.nccl, pattern.header.started) == (
        "2.27.5",
        "2023-11-14T22:13:20.000+00:00",
    )


def test_names_of_kernels_are_not_evidence():
    (row,) = record(trace(call(7, 1.0), kernel(30.0, **{"External id": 7}))).rows
    assert (row.op, row.algorithm, row.protocol) == (None, None, None)


def test_trace_of_kernels_alone_is_read():
    pattern = record(trace(kernel(30.0, **{"External id": 7}, **arguments())))
    assert (pattern.rows[0].function, pattern.rows[0].gpu_us.total) == ("all_reduce", 30.0)


def test_communication_without_a_call_is_counted_by_its_kernels():
    operator = call(9, 3.0) | {
        "name": "symm_mem::multimem_all_reduce_",
        "args": {
            "External id": 9,
            "Input Dims": [[1024, 2], [], []],
            "Input type": ["c10::BFloat16", "", ""],
        },
    }
    launcher = operator | {
        "name": "execute_model",
        "args": {"External id": 5, "Input Dims": [[64]], "Input type": ["float"]},
    }
    graphed = kernel(20.0, **{"External id": 5, "graph node id": 3})
    multimem = "void (anonymous namespace)::multimem_all_reduce_kernel<float>(int)"
    pattern = record(
        trace(
            call(7, 1.0),
            operator,
            launcher,
            kernel(30.0, **{"External id": 7}),
            graphed,
            graphed,
            gpu_event(multimem, 10.0, **{"External id": 9}),
            gpu_event("nvjet_tst_128x64", 100.0),
            gpu_event("Memcpy PtoP (Device -> Device)", 5.0, cat="gpu_memcpy"),
            gpu_event("Memcpy HtoD (Pinned -> Device)", 99.0, cat="gpu_memcpy"),
        )
    )
    assert [(row.function, row.calls, row.gpu_us.total) for row in pattern.rows] == [
        ("all_reduce", 1, 30.0)
    ]
    gpu_time = pattern.header.gpu_time
    assert (gpu_time.kernels_us, gpu_time.communication_us) == (185.0, 85.0)
    assert [(kernels.gpu_us.n, kernels.bytes, kernels.dtype) for kernels in gpu_time.unlisted] == [
        (2, None, None),
        (1, 4096, "bfloat16"),
        (1, None, None),
    ]
    (note,) = [note for note in coverage(pattern) if "calls in CUDA graphs" in note]
    assert "64.7 %" in note and "4 kernels, 0.055 ms" in note and "ncclDevKernel_AllReduce" in note


def test_hidden_communication_is_not_exposed_and_gpus_do_not_hide_each_other():
    pattern = record(
        trace(
            gpu_event("gemm", 10.0, ts=0.0),
            gpu_event(CUSTOM, 10.0, ts=5.0),
            gpu_event(CUSTOM, 10.0, ts=5.0, pid=1),
        )
    )
    gpu_time = pattern.header.gpu_time
    assert (gpu_time.gpus, gpu_time.kernels_us, gpu_time.exposed_us) == (2, 30.0, 15.0)
    text = table(pattern)
    assert "communication takes 66.7 % of all GPU time: 20.00 us of 30.00 us" in text
    assert "all_reduce  vllm::cross_device_reduce_1stage      -      2" in text


def test_a_trace_without_communication_is_an_answer():
    text = table(record(trace(gpu_event("gemm", 10.0))))
    assert "communication takes none of all GPU time, 10.00 us in kernels\n" in text


def test_kernels_of_an_old_trace_are_counted_by_name():
    nameless = call(7, 1.0) | {"args": {"External id": 7}}
    pattern = record(trace(nameless, kernel(30.0, **{"External id": 77, "correlation": 77})))
    assert not pattern.rows and pattern.header.gpu_time.unlisted_calls == 1
    assert "PyTorch 2.1 and older" in " ".join(pattern.header.notes)
    both = record(*(trace(nameless, kernel(30.0), rank=rank) for rank in (0, 1)))
    assert " ".join(both.header.notes).count("PyTorch 2.1 and older") == 1


def test_merged_traces_of_several_ranks_are_separate():
    events = [
        event | {"pid": f"[TP0{rank}-EP00] {event['pid']}"}
        for rank in range(2)
        for event in (call(7, 1.0), kernel(30.0 + rank, **{"External id": 7}))
    ]
    pattern = record(trace(*events))
    assert [(row.calls, row.gpu_us.least) for row in pattern.rows] == [(1, 30.0)]
    assert (pattern.header.ranks, pattern.header.gpu_time.gpus) == ([0, 1], 2)


@pytest.mark.parametrize("broken", [["x"], {"a": 1}, None, 1.5e300, "7"])
def test_odd_streams_and_ids_are_no_defect(broken):
    fields = {"stream": broken, "correlation": broken}
    pattern = record(trace(call(7, 1.0), kernel(30.0, **{"External id": 7}, **fields)))
    assert pattern.rows[0].gpu_us.total == 30.0
    assert record(trace(kernel(30.0, **{"External id": broken}))).header.gpu_time.unlisted_calls


def test_point_to_point_splits_and_control():
    events = [
        call(1, 1.0, name="send", **{"Dst Rank": 1}),
        call(2, 2.0, name="wait"),
        call(3, 3.0, name="barrier"),
        call(4, 4.0, name="alltoallv", sent=8, received=8),
        call(5, 5.0, name="alltoallv", sent=8, received=8, **{"In split size": "[1, 7]"}),
    ]
    pattern = record(trace(*events))
    assert [(row.function, row.peer, row.rank) for row in pattern.rows] == [
        ("send", 1, 0),
        ("alltoall", None, None),
        ("alltoallv", None, None),
    ]
    assert "barrier, 1 call" in " ".join(pattern.header.notes)


def test_a_compressed_file_that_would_fill_memory_is_cut(monkeypatch):
    monkeypatch.setattr(gzip_stream, "FREE_BYTES", 1 << 20)
    content = trace(*(call(number, float(number)) for number in range(20)))
    pattern = record(gzip.compress(content + b" " * (64 << 20)))
    assert pattern.header.skipped and any(
        "compressed bytes become more than 200 times as many" in note
        for note in pattern.header.notes
    )
    assert not record(gzip.compress(content)).header.skipped


def test_a_trace_is_read_in_pieces(monkeypatch):
    events = [event for n in range(300) for event in (call(n, float(n)), gpu_event("gemm", 2.0))]
    events += [kernel(9.0, **{"External id": 299})]
    content = trace(*events)
    whole = record(content)
    monkeypatch.setattr(kineto_events, "_PIECE", 1000)
    assert record(content) == whole and whole.rows[0].calls == 300
    broken = content.replace(b'"cat"', b'"cat', 1)
    pattern = record(broken)
    assert pattern.header.skipped == 1, "a damaged event hides its piece only"
    assert 0 < pattern.rows[0].calls < 300


@pytest.mark.parametrize("piece_bytes", [1000, 16 << 20])
def test_a_list_of_events_alone_is_a_trace(piece_bytes, monkeypatch):
    events = [event for n in range(50) for event in (call(n, float(n)), kernel(2.0))]
    monkeypatch.setattr(kineto_events, "_PIECE", piece_bytes)
    alone = record(json.dumps(events, indent=1).encode())
    assert not alone.header.skipped
    assert alone.rows == record(trace(*events)).rows


def test_gzip_is_read_also_when_it_is_cut():
    packed = gzip.compress(trace(*(call(number, float(number)) for number in range(2000))))
    assert record(packed).rows[0].calls == 2000
    cut = record(packed[: len(packed) * 3 // 4])
    assert 0 < cut.rows[0].calls < 2000 and cut.header.skipped >= 1


@pytest.mark.parametrize("cut_rank", [0, 1])
def test_starts_of_a_trace_cut_before_its_base_time_are_unknown(cut_rank):
    events = [call(1, 1.0), kernel(30.0, **{"External id": 1}), call(2, 2_000_001.0)]
    whole = trace(*events, rank=1 - cut_rank)
    base = b'"baseTimeNanoseconds": 1700000000000000000, '
    cut = trace(*events[:2], rank=cut_rank).replace(base, b"")[:-1]
    pattern = record(whole, cut)
    assert pattern.header.seconds == pytest.approx(2.0, abs=1e-4)
    assert pattern.header.started.startswith("2023-11-14T22:13:20")
    assert pattern.rows[0].calls == 2 and pattern.rows[0].last_us == 2e6
    alone = record(cut)
    assert (alone.header.started, alone.rows[0].first_us) == ("", 0.0)


def test_a_cut_trace_keeps_the_rank_that_stands_before_its_events():
    contents = [trace(call(1, 1.0), kernel(30.0, **{"External id": 1}), rank=n) for n in (1, 0)]
    pattern = record(contents[0], contents[1][:-1])
    assert (pattern.header.ranks, pattern.header.skipped) == ([0, 1], 1)
    assert [row.calls for row in pattern.rows] == [1]


def test_unreadable_events_are_counted():
    broken = call(1, 1.0) | {"args": {"Collective name": "allreduce"}}
    pattern = record(trace(broken, call(2, 2.0)))
    assert (pattern.header.skipped, pattern.rows[0].calls) == (1, 1)


def test_real_trace_of_gloo_gives_the_reason_for_no_calls(sample):
    with pytest.raises(UsageError, match="PyTorch records it for NCCL, not for Gloo"):
        sample("kineto_gloo_rank_0.json")
