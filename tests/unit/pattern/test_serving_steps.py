"""Steps of inference servers in traces: which kernels they have, and what is communication."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pattern_records import record

from busbw.core.serving import PhaseSteps
from busbw.pattern import html, pattern_lines
from busbw.pattern.text import table

CUSTOM = "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "nvjet_tst_128x64"
THREAD, OTHER_THREAD = 11, 12
PREFILL, DECODE = "execute_context_1(512)_generation_0(0)", "execute_context_0(0)_generation_8(8)"


def event(cat, name, ts, dur, pid=1, tid=THREAD, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def marker(name, ts, dur=100.0, **place):
    return event("user_annotation", name, ts, dur, **place)


def launch(correlation, ts, name="cudaLaunchKernel", tid=THREAD):
    return event("cuda_runtime", name, ts, 1.0, tid=tid, correlation=correlation)


def kernel(name, correlation, ts, dur, gpu=0, stream=7):
    return event("kernel", name, ts, dur, pid=gpu, tid=stream, correlation=correlation)


def steps_of(*events, rank=0):
    """The phases of a trace by their names."""
    serving = serving_of(*events, rank=rank)
    return {phase.phase: phase for phase in serving.phases}


def serving_of(*events, rank=0):
    return record(trace(*events, rank=rank)).header.serving


def trace(*events, rank=0):
    document = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": list(events),
    }
    return json.dumps(document).encode()


def graph_step(name, ts, correlation, gpu_ts, sent_us):
    """A step that replays a graph of a matrix product and an all-reduce."""
    return [
        marker(name, ts),
        launch(correlation, ts + 5.0, "cudaGraphLaunch"),
        kernel(GEMM, correlation, gpu_ts, 30.0),
        kernel(CUSTOM, correlation, gpu_ts + 30.0, sent_us),
    ]


def test_a_step_has_the_kernels_that_were_launched_in_it_whenever_they_ran() -> None:
    """The host is ahead of the GPU: the decode step is launched while the prefill runs."""
    phases = steps_of(
        *graph_step(PREFILL, 0.0, 1, 1000.0, 20.0),
        *graph_step(DECODE, 100.0, 2, 1060.0, 10.0),
        *graph_step(DECODE, 200.0, 3, 1200.0, 30.0),
        launch(4, 350.0),
        kernel(GEMM, 4, 1400.0, 5.0),
    )
    assert list(phases) == ["prefill", "decode"]
    decode = phases["decode"]
    assert (decode.steps, decode.kernels_us.median, decode.communication_us.median) == (2, 50, 20)
    assert (decode.share.low, decode.share.median, decode.share.high) == (0.3125, 0.375, 0.4375)
    (calls,) = decode.calls
    assert (calls.function, calls.library) == ("all_reduce", "vLLM, SGLang, AITER")
    assert (calls.per_step, calls.median_us, calls.bytes) == (1.0, 20.0, None)
    assert phases["prefill"].duration_us.median == 50.0


def test_kernels_outside_of_steps_are_counted_apart() -> None:
    serving = serving_of(
        *graph_step(DECODE, 0.0, 1, 1000.0, 20.0),
        launch(4, 350.0),
        kernel(GEMM, 4, 1400.0, 5.0),
        kernel(NCCL, 99, 1500.0, 7.0),
    )
    assert (serving.outside_us, serving.communication_outside_us) == (12.0, 7.0)


def test_hidden_communication_is_not_exposed_and_gaps_are_no_gpu_time() -> None:
    (decode,) = steps_of(
        marker(DECODE, 0.0),
        launch(1, 1.0, "cudaGraphLaunch"),
        kernel(GEMM, 1, 1000.0, 30.0),
        kernel(NCCL, 1, 1020.0, 40.0, stream=20),
        kernel(GEMM, 1, 1100.0, 10.0),
    ).values()
    assert decode.duration_us.median == 110.0
    assert (decode.kernels_us.median, decode.communication_us.median) == (80.0, 40.0)
    assert (decode.exposed_us.median, decode.share.median) == (30.0, 0.5)


def test_the_outermost_marker_is_the_step() -> None:
    """SGLang's own annotation is within vLLM's form of it, which it writes too."""
    serving = serving_of(
        marker("execute_8_context_0(sq0)_generation_8(sq8)", 0.0, 100.0),
        marker("step[DECODE bs=8]", 10.0, 50.0),
        launch(1, 5.0),
        launch(2, 20.0),
        kernel(GEMM, 1, 1000.0, 1.0),
        kernel(NCCL, 2, 1001.0, 1.0),
    )
    (decode,) = serving.phases
    assert (serving.server, decode.steps, decode.kernels_us.median) == ("SGLang", 1, 2.0)


def test_markers_come_before_frames_and_frames_before_unnamed_ranges() -> None:
    frame = "sglang/srt/model_executor/model_runner.py(3003): forward_extend"
    events = [
        event("python_function", frame, 0.0, 90.0),
        event("user_annotation", "gpu_model_runner: forward", 0.0, 95.0),
        launch(1, 5.0),
        kernel(NCCL, 1, 1000.0, 10.0),
    ]
    assert list(steps_of(*events)) == ["prefill"]
    assert list(steps_of(*events, marker("step[MIXED bs=2]", 1.0))) == ["mixed"]


@pytest.mark.parametrize(("tid", "steps"), [(THREAD, 1), (OTHER_THREAD, 1), (13, 0)])
def test_threads_without_markers_launch_for_the_step_of_their_process(tid, steps) -> None:
    """Thread 13 has markers of its own, at another time."""
    serving = serving_of(
        marker(DECODE, 0.0),
        marker(PREFILL, 500.0, tid=13),
        launch(1, 50.0, tid=tid),
        kernel(NCCL, 1, 1000.0, 10.0),
    )
    assert (serving.phases[0].steps if serving else 0) == steps


def test_a_trace_without_launches_has_the_steps_of_the_gpus_tracks() -> None:
    track = [
        event("gpu_user_annotation", DECODE, 1000.0, 50.0, pid=0, tid=7),
        event("gpu_user_annotation", DECODE, 1020.0, 60.0, pid=0, tid=20),
        event("gpu_user_annotation", PREFILL, 1100.0, 50.0, pid=0, tid=7),
    ]
    kernels = [kernel(GEMM, 1, 1000.0, 50.0), kernel(NCCL, 2, 1055.0, 20.0, stream=20)]
    phases = steps_of(*track, *kernels, kernel(GEMM, 3, 1110.0, 5.0))
    assert phases["decode"].steps == 1 and phases["decode"].share.median == 20 / 70
    assert phases["prefill"].kernels_us.median == 5.0


def test_steps_of_several_ranks_are_counted_on_each_gpu() -> None:
    pattern = record(
        trace(*graph_step(DECODE, 0.0, 1, 1000.0, 10.0)),
        trace(*graph_step(DECODE, 0.0, 1, 1000.0, 30.0), rank=1),
    )
    (decode,) = pattern.header.serving.phases
    assert (pattern.header.serving.gpus, decode.steps) == (2, 2)
    assert "steps of vLLM on 2 GPUs, each counted on each" in table(pattern)


def test_ranks_of_a_merged_trace_keep_their_launches_apart() -> None:
    """Correlation numbers are those of a process."""
    events = [
        one | {"pid": f"[TP0{rank}-EP00] {one['pid']}"}
        for rank, sent_us in enumerate((10.0, 30.0))
        for one in graph_step("step[DECODE bs=1]", 0.0, 1, 1000.0, sent_us)
    ]
    serving = serving_of(*events)
    assert (serving.gpus, serving.phases[0].communication_us.median) == (2, 20.0)


def test_the_calls_function_and_bytes_are_taken_where_they_are_recorded() -> None:
    """RCCL's kernels do not state a function."""
    call = event(
        "cpu_op",
        "record_param_comms",
        1.0,
        5.0,
        **{
            "External id": 7,
            "Collective name": "_allgather_base",
            "In msg nelems": 512,
            "Out msg nelems": 1024,
            "Group size": 2,
            "dtype": "BFloat16",
        },
    )
    generic = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
    (decode,) = steps_of(
        marker(DECODE, 0.0),
        call,
        launch(1, 2.0) | {"args": {"External id": 7, "correlation": 1}},
        kernel(generic, 1, 1000.0, 10.0),
        launch(2, 8.0),
        kernel(generic, 2, 1010.0, 4.0),
    ).values()
    assert [(calls.function, calls.kernel, calls.bytes) for calls in decode.calls] == [
        ("all_gather", "", 2048),
        ("", "ncclDevKernel_Generic_4", None),
    ]


def test_phases_are_unknown_without_a_marker() -> None:
    note = "note: whether steps are prefill or decode is unknown"
    unmarked = record(trace(launch(1, 5.0), kernel(CUSTOM, 1, 1000.0, 10.0)))
    assert unmarked.header.serving is None and note in table(unmarked)
    unnamed = record(
        trace(marker("execute_model", 0.0), launch(1, 5.0), kernel(CUSTOM, 1, 1000.0, 10.0))
    )
    text = table(unnamed)
    assert note in text and "\nunknown      1  " in text
    training = record(trace(launch(1, 5.0), kernel(NCCL, 1, 1000.0, 10.0)))
    assert note not in table(training)


def test_the_text_has_the_phases_their_calls_and_the_rest() -> None:
    events = [
        one
        for number, sent_us in enumerate((10.0, 20.0, 30.0, 40.0, 50.0))
        for one in graph_step(DECODE, 100.0 * number, number, 1000.0 + 100 * number, sent_us)
    ]
    text = table(record(trace(*events, kernel(NCCL, 99, 9000.0, 150.0))))
    assert (
        "phase   steps  duration  GPU time  communication   exposed  share (%)\n"
        "decode      5  60.00 us  60.00 us       30.00 us  30.00 us  50.0 (40.0 to 57.1)\n"
    ) in text
    assert (
        "phase   function    library              bytes  a step    median\n"
        "decode  all_reduce  vLLM, SGLang, AITER      -       1  30.00 us\n"
        "outside of steps: 33.3 % of all GPU time, 150.0 us of it communication\n"
    ) in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_record_and_the_page_have_the_steps() -> None:
    pattern = record(trace(*graph_step(DECODE, 0.0, 1, 1000.0, 10.0)))
    reread = pattern_lines.read(list(pattern_lines.lines(pattern)), "written")
    assert reread.header.serving == pattern.header.serving is not None
    page = "".join(text for part in html.pattern(pattern, "p") for text in part.itertext())
    assert "steps of vLLM" in page and "decode" in page and "vLLM, SGLang, AITER" in page


def test_the_trace_of_a_server_process_without_a_gpu_is_no_rank() -> None:
    """vLLM writes one beside those of its workers."""
    frontend = {"schemaVersion": 1, "traceEvents": [event("cpu_op", "aten::empty", 1.0, 2.0)]}
    worker = trace(*graph_step(DECODE, 0.0, 1, 1000.0, 10.0))
    pattern = record(
        json.dumps(frontend).encode(),
        worker,
        names=("1a8_92.async_llm.1779464442.pt.trace.json", "rank0.1779464450.pt.trace.json"),
    )
    assert pattern.header.ranks == [0]
    assert "async_llm.1779464442.pt.trace.json: no rank's trace" in " ".join(pattern.header.notes)


def test_recorded_servers(sample) -> None:
    vllm = sample("kineto_vllm_prefill_rank_0.json").header.serving
    (prefill,) = vllm.phases
    assert (vllm.server, prefill.phase, prefill.steps) == ("vLLM", "prefill", 1)
    assert [(calls.function, calls.per_step, calls.bytes) for calls in prefill.calls] == [
        ("all_reduce", 3.0, 5114880),
        ("all_gather", 1.0, 402176),
    ]
    sglang = sample("kineto_sglang_decode.json").header.serving
    assert (sglang.server, [phase.phase for phase in sglang.phases]) == ("SGLang", ["decode"])
    assert sglang.outside_us == 0.0, "all kernels of a HIP graph are its launch's"


TIMES = st.integers(0, 1000) | st.floats() | st.sampled_from(["7", "x", None])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user_annotation", "gpu_user_annotation", "cuda_runtime", "kernel"]),
            st.sampled_from([DECODE, PREFILL, NCCL, GEMM, "step[IDLE bs=0]"]),
            TIMES,
            TIMES,
            st.sampled_from([0, 1, "1", None]),
            st.integers(0, 3) | st.sampled_from(["x", None, [1]]),
        ),
        max_size=25,
    )
)
def test_figures_of_any_events_agree(events) -> None:
    rows = [
        event(cat, name, ts, dur, pid=place, tid=place, correlation=correlation)
        for cat, name, ts, dur, place, correlation in events
    ]
    document = {"schemaVersion": 1, "traceEvents": [event("kernel", GEMM, 0.0, 1.0), *rows]}
    header = record(json.dumps(document).encode()).header
    for phase in header.serving.phases if header.serving else []:
        _agrees(phase)


def _agrees(phase: PhaseSteps) -> None:
    assert 0 <= phase.share.low <= phase.share.median <= phase.share.high <= 1 + 1e-9
    assert phase.exposed_us.high <= phase.communication_us.high + 1e-6
    assert phase.communication_us.high <= phase.kernels_us.high + 1e-6
    total_us = sum(calls.total_us for calls in phase.calls)
    assert (total_us > 0) == (phase.communication_us.high > 0)
