"""Markers of steps in traces of inference servers, by their names.

A step is one forward pass of a batch. Sources: annotate_profile of vLLM's GPU worker and its
gpu_model_runner; build_step_span_name and model_executor of SGLang; PyExecutor of TensorRT-LLM.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from busbw.core.serving import DECODE, DRAFT, IDLE, MIXED, PREFILL, UNKNOWN

# Of the markers in a trace, those of the lowest level count.
NAMED, FRAME, UNNAMED = range(3)
_VLLM, SGLANG, _TENSORRT_LLM = "vLLM", "SGLang", "TensorRT-LLM"
_CATEGORIES = frozenset({"user_annotation", "cpu_op", "python_function"})
ON_GPU = "gpu_user_annotation"
_MODES = {
    "EXTEND": PREFILL,
    "PREFILL": PREFILL,
    "SPLIT_PREFILL": PREFILL,
    "DECODE": DECODE,
    "TARGET_VERIFY": DECODE,
    "VERIFY": DECODE,
    "MIXED": MIXED,
    "DRAFT": DRAFT,
    "DRAFT_EXTEND": DRAFT,
    "DRAFT_EXTEND_V2": DRAFT,
    "IDLE": IDLE,
}


class StepMarker(NamedTuple):
    """What the name of a marker says."""

    server: str
    phase: str
    level: int


def _by_requests(match: re.Match[str]) -> str:
    """The phase by the numbers of requests in their prompts, and of those that generate."""
    prompts, generating = int(match[1]) > 0, int(match[2]) > 0
    if prompts:
        return MIXED if generating else PREFILL
    return DECODE if generating else IDLE


def _by_mode(match: re.Match[str]) -> str:
    return _MODES.get(match[1].upper(), UNKNOWN)


def _by_frame(match: re.Match[str]) -> str:
    """`forward_extend` is a prefill; replays of the runner's graphs are decode steps."""
    return PREFILL if match[1] == "extend" else DECODE


def _unknown(_: re.Match[str]) -> str:
    return UNKNOWN


class _Row(NamedTuple):
    """Names that match `pattern` from their start; `phase` takes the match."""

    pattern: str
    server: str
    phase: Callable[[re.Match[str]], str]
    level: int


_N = r"(\d{1,9})"
_ROWS = (
    # execute_context_1(512)_generation_7(7), execute_519_context_1(sq512sk512...)_generation_7(...)
    _Row(
        rf"execute_(?:\d+_)?context_{_N}\([^()]*\)_generation_{_N}\([^()]*\)$",
        _VLLM,
        _by_requests,
        NAMED,
    ),
    # vLLM 0.10 and 0.11: a request whose first chunk was scheduled before is cached
    _Row(rf"execute_new_{_N}_cached_{_N}$", _VLLM, _by_requests, NAMED),
    # step[EXTEND bs=2 toks=1024], step[DECODE bs=64 g_sqsq=64], step[IDLE bs=0]
    _Row(r"step\[(\w+)(?: [^\]]*)?\]$", SGLANG, _by_mode, NAMED),
    # [Executor] _forward_step 17: 0 ctx reqs, 32 gen reqs, also with the tokens of the prompts
    _Row(
        rf"\[Executor\] _forward_step(?: \d+)?: {_N} ctx reqs,(?: \d+ ctx tokens,)? {_N} gen reqs$",
        _TENSORRT_LLM,
        _by_requests,
        NAMED,
    ),
    # Frames of Python, of SGLang before it had markers
    _Row(
        r".*\bsglang/srt/model_executor/(?:model_runner\.py\(\d+\): forward_(decode|extend)"
        r"|cuda_graph_runner\.py\(\d+\): replay)$",
        SGLANG,
        _by_frame,
        FRAME,
    ),
    _Row(r"(?:v2_)?gpu_model_runner: forward$", _VLLM, _unknown, UNNAMED),
    _Row(
        r"execute_model$|.*\bvllm/(?:\w+/)*(?:gpu_)?model_runner\.py\(\d+\): execute_model$",
        _VLLM,
        _unknown,
        UNNAMED,
    ),
    _Row(
        r".*\btensorrt_llm/\S*/py_executor\.py\(\d+\): _forward_step$",
        _TENSORRT_LLM,
        _unknown,
        UNNAMED,
    ),
)
_TABLE = tuple((re.compile(row.pattern), row) for row in _ROWS)
_LONGEST = 1024  # characters of a name that can be a marker


def is_on_host(category: str) -> bool:
    """Whether events of this category are ranges of a host's thread."""
    return category in _CATEGORIES


def is_marker(category: str, name: str) -> bool:
    """Whether an event of this category and name marks a step."""
    return (category in _CATEGORIES or category == ON_GPU) and marker(name) is not None


@lru_cache(maxsize=1 << 14)
def marker(name: str) -> StepMarker | None:
    """What the name of a range says of a server's step; None for any other range."""
    if len(name) > _LONGEST:
        return None
    for pattern, row in _TABLE:
        match = pattern.match(name)
        if match:
            return StepMarker(row.server, row.phase(match), row.level)
    return None
