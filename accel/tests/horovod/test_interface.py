"""Every public name of Horovod's PyTorch module is there, with the signature that scripts rely
on.
"""

import inspect

import pytest

import busbw_accel.horovod.torch as hvd

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

SCALES = "prescale_factor=1.0, postscale_factor=1.0, process_set"
SIGNATURES = {
    "allreduce": f"tensor, average=None, name=None, compression, op=None, {SCALES}",
    "allreduce_async": f"tensor, average=None, name=None, op=None, {SCALES}",
    "allreduce_": f"tensor, average=None, name=None, op=None, {SCALES}",
    "allreduce_async_": f"tensor, average=None, name=None, op=None, {SCALES}",
    "grouped_allreduce": f"tensors, average=None, name=None, compression, op=None, {SCALES}",
    "grouped_allreduce_async": f"tensors, average=None, name=None, op=None, {SCALES}",
    "grouped_allreduce_": f"tensors, average=None, name=None, op=None, {SCALES}",
    "grouped_allreduce_async_": f"tensors, average=None, name=None, op=None, {SCALES}",
    "allgather": "tensor, name=None, process_set",
    "allgather_async": "tensor, name=None, process_set",
    "grouped_allgather": "tensors, name=None, process_set",
    "grouped_allgather_async": "tensors, name=None, process_set",
    "broadcast": "tensor, root_rank, name=None, process_set",
    "broadcast_async": "tensor, root_rank, name=None, process_set",
    "broadcast_": "tensor, root_rank, name=None, process_set",
    "broadcast_async_": "tensor, root_rank, name=None, process_set",
    "alltoall": "tensor, splits=None, name=None, process_set",
    "alltoall_async": "tensor, splits=None, name=None, process_set",
    "reducescatter": (
        "tensor, name=None, compression, op=0, process_set, prescale_factor=1.0,"
        " postscale_factor=1.0"
    ),
    "reducescatter_async": (
        "tensor, name=None, op=0, process_set, prescale_factor=1.0, postscale_factor=1.0"
    ),
    "grouped_reducescatter": (
        "tensors, name=None, compression, op=0, process_set, prescale_factor=1.0,"
        " postscale_factor=1.0"
    ),
    "grouped_reducescatter_async": (
        "tensors, name=None, op=0, process_set, prescale_factor=1.0, postscale_factor=1.0"
    ),
    "sparse_allreduce_async": "tensor, name, op, process_set",
    "join": "device=-1",
    "barrier": "process_set",
    "poll": "handle",
    "synchronize": "handle",
    "init": "comm=None, process_sets=None",
    "start_timeline": "file_path, mark_cycles=False",
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": "obj, root_rank=0, name=None, process_set",
    "allgather_object": "obj, name=None",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "DistributedOptimizer": (
        "optimizer, named_parameters=None, compression, backward_passes_per_step=1, op=0,"
        " gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False,"
        " process_set"
    ),
    "ProcessSet": "ranks_or_comm",
}
ARGUMENTLESS = [
    "shutdown",
    "is_initialized",
    "stop_timeline",
    "size",
    "local_size",
    "cross_size",
    "rank",
    "local_rank",
    "cross_rank",
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
    "is_homogeneous",
]
OTHERS = [
    "elastic",
    "Compression",
    "global_process_set",
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
    "HorovodInternalError",
    "SyncBatchNorm",
]


def signature(function):
    """A signature as text, without defaults that are objects of busbw."""
    words = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is hvd.global_process_set or parameter.default is hvd.Compression.none:
            words.append(name)
        else:
            words.append(
                name
                if parameter.default is inspect.Parameter.empty
                else f"{name}={parameter.default}"
            )
    return ", ".join(words)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    function = getattr(hvd, name)
    assert signature(function) == SIGNATURES[name]
    assert name not in {"process_set", "compression"} and function.__doc__


@pytest.mark.parametrize(
    "name", ["barrier", "allreduce", "broadcast_object", "DistributedOptimizer"]
)
def test_the_default_process_set_is_global(name):
    assert (
        inspect.signature(getattr(hvd, name)).parameters["process_set"].default
        is hvd.global_process_set
    )


def test_functions_without_arguments():
    assert [name for name in ARGUMENTLESS if inspect.signature(getattr(hvd, name)).parameters] == []


def test_all_public_names_are_exported():
    assert sorted(hvd.__all__) == sorted(
        [*SIGNATURES, *ARGUMENTLESS, *OTHERS, "HostsUpdatedInterrupt"]
    )
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    assert issubclass(hvd.HorovodInternalError, RuntimeError)


def test_reductions_have_horovods_numbers():
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)


def test_elastic():
    elastic = hvd.elastic
    assert signature(elastic.ElasticSampler) == "dataset, shuffle=True, seed=0"
    assert signature(elastic.TorchState) == "model=None, optimizer=None, kwargs"
    assert (
        signature(elastic.ObjectState) == "bcast_object, get_rank, kwargs"
        and signature(elastic.State) == "bcast_object, get_rank"
    )
    assert signature(elastic.run) == "func" and signature(elastic.run_fn) == "func, reset"
    for name in ("set_epoch", "record_batch", "reset", "state_dict", "load_state_dict"):
        assert callable(getattr(elastic.ElasticSampler, name))
