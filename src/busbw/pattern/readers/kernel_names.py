"""Which kernels of a trace are communication, by their names.

The first row that matches counts. A pattern is searched in the kernel's qualified name, without
template and call arguments, in any case: `deep_ep::internode::dispatch` of
`void deep_ep::internode::dispatch<true, 3>(int*)`. Sources: the projects that define the kernels,
named in each row.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from busbw.pattern import merge

_CUSTOM, _AITER, _SGLANG = "vLLM, SGLang, AITER", "AITER", "SGLang"
_TRTLLM, _PPLX = "TensorRT-LLM, FlashInfer", "pplx-kernels"
# Libraries that only inference servers use
OF_SERVERS = frozenset({_CUSTOM, _AITER, _SGLANG, _TRTLLM, _PPLX})
NCCL, OTHER = "NCCL or RCCL", "other"
# Of kernels that a program writes with NCCL's device API (NCCL 2.28: LSA, multimem, GIN); they take
# this type, so that it stands among their arguments, also in a mangled name.
DEVICE_API = "NCCL's device API"
_DEVICE_API = re.compile(r"(?:\b|\d)ncclDevComm")


class Communication(NamedTuple):
    """What a kernel's name says.

    `function` is a collective's name, or '' if the name does not state one.
    """

    name: str
    library: str
    function: str


class _KernelName(NamedTuple):
    pattern: str
    library: str
    function: str = ""


_FUNCTION = r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all(?:v|_?base)?|broadcast"
_ROWS = (
    # NCCL's contrib/nccl_ep: nccl_ep_jit_ht_dispatch_kernel, nccl_ep::internode_ll::dispatch
    _KernelName(r"\bnccl_ep(?:::|_)", "NCCL EP"),
    # ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclKernel_..., ncclSymkDevKernel_..., NCCL 2.4's
    # ncclAllReduceRingLLKernel_sum_f32; MSCCL's are part of RCCL
    _KernelName(r"\b(?:[nr]ccl|msccl)\w*kernel", NCCL),
    # vLLM and SGLang: csrc/custom_all_reduce.cuh, quickreduce; AITER: custom_all_reduce.cuh
    _KernelName(r"\baiter::(?:\w*all_?reduce|cross_device_reduce_)", _AITER, "all_reduce"),
    _KernelName(r"\breduce_scatter_cross_device", _AITER, "reduce_scatter"),
    _KernelName(r"\bcross_device_reduce_|\bquickreduce::", _CUSTOM, "all_reduce"),
    _KernelName(r"\ballgather_(?:lastdim|vec)", _AITER, "all_gather"),
    # SGLang: jit_kernel/csrc/distributed
    _KernelName(r"^all_reduce_(?:one|two)_shot_\w*kernel", _SGLANG, "all_reduce"),
    _KernelName(r"\buccl(?:::|_)", "UCCL"),
    # DeepEP: csrc/kernels, also in copies whose outer namespace has another name
    _KernelName(
        r"\b(?:deep_ep|hybrid_ep|internode(?:_ll)?|intranode)::"
        r"|\bnotify_(?:dispatch|combine)\b|\bcached_notify"
        r"|\bget_dispatch_layout\b",
        "DeepEP",
    ),
    # Copies of DeepEP over other transports: NIXL's examples/device/ep, Mooncake's mooncake-ep
    _KernelName(r"\bnixl_ep::", "NIXL EP"),
    _KernelName(r"\bmooncake::(?:\w+::)*(?:dispatch|combine)", "Mooncake EP"),
    _KernelName(r"\bmori::|\bEp(?:Dispatch|Combine)\w*Kernel", "MORI"),
    _KernelName(r"\bpplx\w*::|\ba2a_(?:dispatch|combine)_(?:send|recv)", _PPLX),
    # TensorRT-LLM: kernels/communicationKernels, mnnvl; FlashInfer: comm/trtllm_*.cuh
    _KernelName(r"\bmoe_?a2a|\bmoe_?all_?to_?all|\bmoe_comm\w*::", _TRTLLM, "alltoallv"),
    _KernelName(r"\bhelixAllToAll", _TRTLLM, "alltoall"),
    _KernelName(
        r"\b(?:tensorrt_llm|flashinfer)::.*all_?reduce|\blamport_\w*all_?reduce"
        r"|\ballreduce_fusion_kernel|\bar_fusion::|\btrtllm_\w*all_?reduce",
        _TRTLLM,
        "all_reduce",
    ),
    _KernelName(r"\bk?userbuffers_", "Transformer Engine"),
    # PyTorch: csrc/distributed/c10d, symm_mem and intra_node_comm
    _KernelName(
        rf"\bmultimem_(?:one_shot_)?(?:{_FUNCTION})|\b(?:one|two)_?shot_?(?:{_FUNCTION})"
        r"|\bhybridCubeMeshAllReduce|\bc10d::symmetric_memory::|\b(?:put|wait)_signal_kernel\b",
        "PyTorch symmetric memory",
    ),
    _KernelName(r"(?:\b|_)nvshmem", "NVSHMEM"),
    _KernelName(r"\broc_?shmem", "rocSHMEM"),
    _KernelName(r"\bmscclpp", "MSCCL++"),
    _KernelName(r"\boneccl", "oneCCL"),
    _KernelName(r"\bhcom_", "HCCL"),
    # Copies between GPUs, as profilers name them
    _KernelName(r"^Memcpy PtoP|^CopyPeerToPeer|^hipMemcpyPeer", "copy between GPUs"),
    # Triton kernels, and those of engines that are not named above. A reduction within a warp or a
    # block is no communication, and `broadcast` is an operation on tensors too. TorchInductor names
    # a kernel after the operators around it, such as triton_poi_fused_all_reduce_0 for a copy.
    _KernelName(
        r"^(?!triton_[a-z]+_fused_).*(?<!warp)(?<!warp_)(?<!block)(?<!block_)"
        r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)",
        OTHER,
    ),
)
_TABLE = tuple((re.compile(row.pattern, re.IGNORECASE), row) for row in _ROWS)
_STATED = re.compile(rf"(?:{_FUNCTION})|_reduce_", re.IGNORECASE)
_UNNAMED = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|\(anonymous\)::")
_MANGLED = re.compile(r"_ZN?K?(?=\d)")
_LENGTH = re.compile(r"\d+")
_READ, _LONGEST = 4096, 64  # characters of a name that are read, and of one that is kept


@lru_cache(maxsize=1 << 12)
def communication(kernel: str) -> Communication | None:
    """What the name of a kernel says of its communication; None for any other kernel."""
    name, is_device_api = _qualified(kernel), bool(_DEVICE_API.search(kernel[:_READ]))
    for pattern, row in _TABLE:
        if pattern.search(name):
            library = DEVICE_API if is_device_api and row.library == OTHER else row.library
            return Communication(name[:_LONGEST], library, row.function or _stated(name))
    return Communication(name[:_LONGEST], DEVICE_API, _stated(name)) if is_device_api else None


def _stated(name: str) -> str:
    """The collective that a name states, '' for none."""
    match = _STATED.search(name)
    return merge.function(match[0].strip("_")) or "" if match else ""


def _qualified(kernel: str) -> str:
    """The kernel's name with namespaces, without its type and the arguments."""
    name = _UNNAMED.sub("", kernel[:_READ]).strip()
    if _MANGLED.match(name):
        return "::".join(_mangled_parts(name)) or name
    if name.startswith("Memcpy "):
        return name
    name = re.split(r"[<(\[]", name, maxsplit=1)[0].strip()
    return name.rsplit(" ", 1)[-1]


def _mangled_parts(name: str) -> list[str]:
    """The parts of a name that a C++ compiler mangled: `_ZN4vllm6reduceI...` has vllm, reduce."""
    parts, at = [], _MANGLED.match(name).end()  # type: ignore[union-attr]
    while length := _LENGTH.match(name, at):
        end = length.end() + int(length[0][:5])
        parts.append(name[length.end() : end])
        at = end
    return [part for part in parts if not part.startswith("_GLOBAL__N_")]
