"""How gradient compressors outside of Horovod use it: the names that DGC and GRACE import, and the
calls they make.

DGC gathers values and indices of different lengths per rank. GRACE gathers without names, reduces
with a positional `average`, and broadcasts from each rank.
"""

import importlib

import torch
from hvd_contracts import total
from torch import nn

import busbw_accel.horovod.torch as hvd
from busbw_accel.horovod import shim

IMPORTED = {
    "horovod.torch": (
        "allgather allgather_async allreduce allreduce_ allreduce_async_ broadcast_async"
        " broadcast_optimizer_state broadcast_parameters init local_rank nccl_built rank size"
        " synchronize Average Compression Sum"
    ),
    "horovod.torch.mpi_ops": (
        "allgather allgather_async allreduce allreduce_async_ broadcast_async global_process_set "
        "grouped_allreduce_async_ poll rank rocm_built size synchronize Adasum Average Sum"
    ),
    "horovod.torch.compression": "Compression",
    "horovod.torch.functions": "broadcast_object",
    "horovod.common.util": "split_list",
}


def names_that_compressors_import_exist():
    shim.install()
    for module, names in IMPORTED.items():
        imported = importlib.import_module(module)
        assert not [name for name in names.split() if not hasattr(imported, name)], module
    from horovod.common.util import split_list

    assert split_list([1, 2, 3], 2) == [[1, 2], [3]] and split_list([1], 2) == [[1], []]


def dgc_gathers_the_largest_entries():
    shim.install()
    from horovod.torch.mpi_ops import Average, allgather_async, allreduce_async_, size, synchronize

    rank, model, handles = hvd.rank(), nn.Linear(4, 3), {}

    def sends(name, parameter):
        def hook(*_):
            gradient = parameter.grad.view(-1)
            if parameter.dim() == 1:
                handles[name] = allreduce_async_(parameter.grad.half(), name=name, op=Average)
                return
            indices = torch.arange(rank + 1)  # the number of entries differs by rank
            sent = (gradient[indices].view(-1, 1), indices.view(-1, 1).to(torch.int32))
            handles[name] = [
                allgather_async(tensor, name=f"{name}.t{number}")
                for number, tensor in enumerate(sent)
            ]

        return hook

    accumulators = [
        parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        for parameter in model.parameters()
    ]
    for (name, parameter), accumulator in zip(model.named_parameters(), accumulators, strict=True):
        accumulator.register_hook(sends(name, parameter))
    model(torch.full((1, 4), rank + 1.0)).sum().backward()
    values, indices = (synchronize(handle) for handle in handles["weight"])
    assert values.shape == indices.shape == (total(), 1) and indices.dtype == torch.int32
    dense = (
        torch.zeros(12).index_put_([indices.view(-1).long()], values.view(-1), accumulate=True)
        / size()
    )
    expected = torch.zeros(12)
    for other in range(size()):
        expected[: other + 1] += (other + 1.0) / size()
    assert torch.allclose(dense, expected)
    model.weight.grad.set_(dense.view(3, 4))
    bias = synchronize(handles["bias"])
    assert bias.dtype == torch.float16 and (bias == 1).all()


def dgc_clips_by_the_global_norm():
    square = torch.tensor(float(hvd.rank() + 1))
    assert torch.isclose(
        hvd.allreduce_(square, average=True, name="norm"), torch.tensor(total() / hvd.size())
    )


def grace_gathers_without_names():
    shim.install()
    from horovod.torch import allgather, allgather_async, synchronize

    # empty at rank 0
    sent = [torch.full((hvd.rank() * 3,), hvd.rank() + 1.0), torch.arange(2 * hvd.rank())]
    sizes = (
        allgather(torch.tensor([tensor.numel() for tensor in sent]))
        .view(hvd.size(), -1)
        .t()
        .tolist()
    )
    handles = [allgather_async(tensor) for tensor in sent]
    assert all(isinstance(handle, int) for handle in handles)
    for handle, of_ranks, tensor in zip(handles, sizes, sent, strict=True):
        parts = synchronize(handle).split(of_ranks)
        assert torch.equal(parts[hvd.rank()], tensor)
        assert [len(part) for part in parts] == of_ranks


def grace_reduces_and_broadcasts():
    shim.install()
    from horovod.torch import allreduce_async_, broadcast_async, poll, synchronize

    tensor = torch.full((4,), hvd.rank() + 1.0)
    handle = allreduce_async_(tensor, True, "gradient0")
    result = synchronize(handle)
    assert result.data_ptr() == tensor.data_ptr() and (tensor == total() / hvd.size()).all()
    assert poll(handle) and synchronize(handle) is None, "a handle is used once"
    handles = [
        broadcast_async(torch.tensor([hvd.rank()]), root, f"gradient{root}_0")
        for root in range(hvd.size())
    ]
    assert [int(synchronize(handle)) for handle in handles] == list(range(hvd.size()))
