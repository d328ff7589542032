"""Kernels that communicate are known by their names, as profilers print them."""

import pytest

from busbw.pattern.readers.kernel_names import communication

COMMUNICATION = [
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
    ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce"),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", ""),
    ("ncclSymkDevKernel_ReduceScatter_LDMC_Sum_bf16(ncclSymkDevWorkArgs)", "reduce_scatter"),
    ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
    ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", ""),
    ("mscclKernel_Sum_half_Simple(ncclWork)", ""),
    ("void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)", "all_reduce"),
    ("_ZN4vllm26cross_device_reduce_2stageI6__halfLi8EEEvPNS_8RankDataE", "all_reduce"),
    ("void quickreduce::allreduce_prototype_twoshot<x>(void*)", "all_reduce"),
    ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::Half, 16>(int)", "all_reduce"),
    ("_ZN12_GLOBAL__N_126multimem_all_gather_kernelILi16EEEvPv", "all_gather"),
    ("void <unnamed>::two_shot_all_reduce_kernel_inplace<float>(float*)", "all_reduce"),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(int)", "all_reduce"),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot<x>", "all_reduce"),
    ("void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<x>(int)", "alltoallv"),
    ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)", ""),
    ("void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*, float*)", ""),
    ("void deep_ep::intranode::cached_notify_combine<8>(void**)", ""),
    ("void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(int)", ""),
    ("void pplx::a2a_combine_recv_kernel<x>(int)", ""),
    ("nvshmemi_barrier_on_stream_kernel(int)", ""),
    ("void mscclpp::allreduce_LL_1node<float>(int)", "all_reduce"),
    ("kuserbuffers_pushsend(int)", ""),
    ("Memcpy PtoP (Device -> Device)", ""),
    ("one_shot_all_to_all_triton", "alltoall"),
    ("void GinAlltoAllKernel<float>(ncclWindow_vidmem*, unsigned long, ncclDevComm)", "alltoall"),
    ("void ginPutBwKernel<true, false>(ncclDevComm, unsigned int, int)", ""),
    ("_Z10stepKernelIfEv11ncclDevCommj", ""),
]
LIBRARIES = [
    ("_ZN5aiter30allreduce_fusion_kernel_1stageIDF16bEEvPNS_8RankDataE", "AITER", "all_reduce"),
    ("void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(int)", "AITER", "all_reduce"),
    (
        "void (anonymous namespace)::all_reduce_one_shot_push_kernel<__half, 8u, true>(int)",
        "SGLang",
        "all_reduce",
    ),
    (
        "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16>(int)",
        "PyTorch symmetric memory",
        "all_reduce",
    ),
    ("void helixAllToAllKernel<true>(HelixAllToAllParams)", "TensorRT-LLM, FlashInfer", "alltoall"),
    ("void nixl_ep::ep_kernels::dispatch<true, 7168>(void*)", "NIXL EP", ""),
    ("void nccl_ep::internode_ll::combine<7168>(void*)", "NCCL EP", ""),
    ("nccl_ep_jit_ht_dispatch_kernel", "NCCL EP", ""),
    ("void uccl::internode_ll::dispatch<true, 7168>(void*)", "UCCL", ""),
    ("void mooncake::combine<7168, 9>(void*)", "Mooncake EP", ""),
    ("void deep_ep::internode_ll::combine<3, 10>(void*)", "DeepEP", ""),
    ("rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", "NCCL or RCCL", ""),
]
OTHERS = [
    "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, ncclKernel*>>(int)",
    "void at::native::elementwise_kernel<128, 4, allreduce>(int)",
    "void (anonymous namespace)::groupnorm_kernel_dispatch_down<__hip_bfloat16, 1024u>(int)",
    "_combined_routing_compute",
    "void warpAllReduceSum<float>(float*)",
    "void softmax_block_all_reduce<float>(float*)",
    "void at::native::broadcast_kernel<float>(float*)",
    "_scatter_gather_elementwise_kernel",
    "void mooncake::copy_rows<float>(float*)",
    "_dcp_lse_combine_kernel",
    "triton_poi_fused_all_reduce_lift_fresh_0",
    "void flash_fwd_splitkv_mla_combine_kernel<x>(int)",
    "moeTopK_dispatch_kernel",
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<x>(int)",
    "Memcpy DtoD (Device -> Device)",
    "Memcpy HtoD (Pinned -> Device)",
    "_Z",
    "_ZN99999999999x",
    "",
]


@pytest.mark.parametrize(
    ("kernel", "library"),
    [
        ("ncclSymkDevKernel_AllGather_RailRing_LsaSTMC(ncclSymkDevWorkArgs)", "NCCL or RCCL"),
        ("void GinAlltoAllKernel<float>(ncclWindow_vidmem*, ncclDevComm)", "NCCL's device API"),
        ("void ginPutBwKernel<true, false>(ncclDevComm, int)", "NCCL's device API"),
        ("void deep_ep::internode::dispatch<true>(ncclDevComm)", "DeepEP"),
        ("void GinAlltoAllKernel<float>(int)", "other"),
    ],
)
def test_kernels_with_nccls_device_api_are_known_by_what_they_take(
    kernel: str, library: str
) -> None:
    found = communication(kernel)
    assert found is not None and found.library == library


@pytest.mark.parametrize(("kernel", "function"), COMMUNICATION)
def test_a_kernel_that_communicates_states_its_collective(kernel: str, function: str) -> None:
    found = communication(kernel)
    assert found is not None and found.function == function


@pytest.mark.parametrize(("kernel", "library", "function"), LIBRARIES)
def test_a_kernel_is_named_after_its_library(kernel: str, library: str, function: str) -> None:
    found = communication(kernel)
    assert found is not None and (found.library, found.function) == (library, function)


@pytest.mark.parametrize("kernel", OTHERS)
def test_other_kernels_are_no_communication(kernel: str) -> None:
    assert communication(kernel) is None
