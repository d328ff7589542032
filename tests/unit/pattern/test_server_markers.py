"""The names that inference servers give to ranges around a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.pattern.readers.server_markers import FRAME, NAMED, UNNAMED, is_marker, marker

FORWARD = "/sgl-workspace/sglang/python/sglang/srt/model_executor"
NAMES = [
    ("execute_context_1(888)_generation_0(0)", "vLLM", "prefill"),
    ("execute_context_1(888_788544)_generation_0(0)", "vLLM", "prefill"),
    ("execute_context_0(0)_generation_32(32)", "vLLM", "decode"),
    ("execute_context_2(512)_generation_30(30)", "vLLM", "mixed"),
    ("execute_context_0(0)_generation_0(0)", "vLLM", "idle"),
    (
        "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
        "vLLM",
        "decode",
    ),
    ("execute_new_3_cached_0", "vLLM", "prefill"),
    ("execute_new_0_cached_64", "vLLM", "decode"),
    ("execute_new_1_cached_64", "vLLM", "mixed"),
    ("step[DECODE bs=64]", "SGLang", "decode"),
    ("step[EXTEND bs=15 toks=15360]", "SGLang", "prefill"),
    ("step[EXTEND bs=1 toks=1025 c_sqsq=1050625 c_sqsk=1050625 c_sk=1025]", "SGLang", "prefill"),
    ("step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=2048]", "SGLang", "mixed"),
    ("step[TARGET_VERIFY bs=8]", "SGLang", "decode"),
    ("step[VERIFY bs=8]", "SGLang", "decode"),
    ("step[DRAFT_EXTEND_V2 bs=8]", "SGLang", "draft"),
    ("step[IDLE bs=0]", "SGLang", "idle"),
    ("step[PREBUILT bs=2]", "SGLang", "unknown"),
    ("[Executor] _forward_step 17: 0 ctx reqs, 32 gen reqs", "TensorRT-LLM", "decode"),
    ("[Executor] _forward_step: 4 ctx reqs, 0 gen reqs", "TensorRT-LLM", "prefill"),
    ("[Executor] _forward_step 9: 2 ctx reqs, 512 ctx tokens, 3 gen reqs", "TensorRT-LLM", "mixed"),
]
FRAMES = [
    (f"{FORWARD}/model_runner.py(3003): forward_extend", FRAME, "prefill"),
    (f"{FORWARD}/model_runner.py(2950): forward_decode", FRAME, "decode"),
    ("sglang/srt/model_executor/cuda_graph_runner.py(1333): replay", FRAME, "decode"),
    ("vllm/v1/worker/gpu_model_runner.py(3380): execute_model", UNNAMED, "unknown"),
    ("tensorrt_llm/_torch/pyexecutor/py_executor.py(2103): _forward_step", UNNAMED, "unknown"),
    ("gpu_model_runner: forward", UNNAMED, "unknown"),
    ("v2_gpu_model_runner: forward", UNNAMED, "unknown"),
    ("execute_model", UNNAMED, "unknown"),
]
OTHERS = [
    "step[DECODE bs=64] ",
    "step[]",
    "ProfilerStep#134",
    "step[3/7]:transform",
    "capture_32_DECODE",
    "gpu_model_runner: sample",
    "sglang/srt/layers/attention/aiter_backend.py(2039): forward_extend",
    "sglang/srt/model_executor/piecewise_cuda_graph_runner.py(9): replay",
    "torch/cuda/graphs.py(139): replay",
    "execute_context_menu_item",
    "execute_context_1(2)_generation_",
    "execute_context_99999999999999999999(1)_generation_1(1)",
    "nccl:all_reduce",
    "",
]


@pytest.mark.parametrize(("name", "server", "phase"), NAMES)
def test_a_marker_names_server_and_phase(name: str, server: str, phase: str) -> None:
    assert marker(name) == (server, phase, NAMED)
    assert is_marker("user_annotation", name) and is_marker("gpu_user_annotation", name)
    assert not is_marker("kernel", name)


@pytest.mark.parametrize(("name", "level", "phase"), FRAMES)
def test_a_frame_counts_less_than_a_marker(name: str, level: int, phase: str) -> None:
    found = marker(name)
    assert found is not None and (found.level, found.phase) == (level, phase)


@pytest.mark.parametrize("name", OTHERS)
def test_other_ranges_are_no_steps(name: str) -> None:
    assert marker(name) is None


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**9 - 1), st.text(max_size=40))
def test_the_requests_tell_the_phase(prompts: int, generating: int, tokens: str) -> None:
    inside = tokens.replace("(", "").replace(")", "").replace("\n", "")
    phases = {
        marker(f"execute_context_{prompts}({inside})_generation_{generating}({inside})"),
        marker(f"execute_7_context_{prompts}({inside})_generation_{generating}({inside})"),
    }
    phase = {(1, 0): "prefill", (0, 1): "decode", (1, 1): "mixed", (0, 0): "idle"}[
        min(prompts, 1), min(generating, 1)
    ]
    assert phases == {("vLLM", phase, NAMED)}


@given(st.text() | st.text("execut_conxgra1(0)step[DEC]= ", max_size=60))
def test_any_name_is_a_marker_or_none(name: str) -> None:
    found = marker(name)
    assert found is None or found.phase
