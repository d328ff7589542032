"""What holds for tensors of a GPU each, the current one being GPU 0 on every rank, as in scripts
that move tensors and set nothing.
"""

import pytest
import torch

import busbw_accel.horovod.torch as hvd

ROWS, TURNS = 1 << 20, 10


def results_may_be_read_at_once():
    """The host does not wait for the device: reads are queued after writes."""
    device, rank = torch.device("cuda", hvd.rank()), hvd.rank()
    for turn in range(TURNS):
        own_tensor = torch.full((ROWS * 2,), turn + rank, dtype=torch.float32, device=device)
        assert (hvd.allreduce(own_tensor, op=hvd.Sum) == 2 * turn + 1).all()
        assert (hvd.broadcast(own_tensor, 1) == turn + 1).all()
        assert (hvd.reducescatter(own_tensor, op=hvd.Sum) == 2 * turn + 1).all()
        assert [float(half.mean()) for half in hvd.alltoall(own_tensor).split(ROWS)] == [
            turn,
            turn + 1,
        ]
        gathered = hvd.allgather(own_tensor[: ROWS * (rank + 1)])
        assert [float(part.mean()) for part in gathered.split([ROWS, ROWS * 2])] == [turn, turn + 1]


def memory_of_a_result_is_not_reused_while_it_is_read():
    """A result that is dropped while the GPU has still to read it, and operations after it that
    were asked for before.
    """
    device, rank = torch.device("cuda", hvd.rank()), hvd.rank()
    own_tensor = torch.full((ROWS,), rank, dtype=torch.float32, device=device)
    for _ in range(TURNS):
        handles = [hvd.allgather_async(own_tensor + number) for number in range(4)]
        sums = []
        for handle in handles:
            gathered = hvd.synchronize(handle)
            torch.cuda._sleep(1 << 20)
            sums.append(gathered.mean())
            del gathered
        assert [float(value) for value in sums] == [number + 0.5 for number in range(4)]


def scaling_and_splits_equal_those_of_horovod():
    """Its GPU kernels multiply 16-bit floats by a factor of 16 bits; what an all-to-all received
    is told where its splits were.
    """
    device, rank = torch.device("cuda", hvd.rank()), hvd.rank()
    own_tensor = torch.arange(-100, 100, dtype=torch.float16, device=device)
    factor = torch.tensor(0.19151945, dtype=torch.float16, device=device)
    assert (
        hvd.allreduce(own_tensor, op=hvd.Sum, prescale_factor=0.19151945)
        == 2 * (factor * own_tensor)
    ).all()
    assert (
        hvd.reducescatter(own_tensor, op=hvd.Sum, postscale_factor=0.19151945)
        == (2 * own_tensor * factor).chunk(2)[rank]
    ).all()
    for splits in ([1, 1], torch.tensor([1, 1]), torch.tensor([1, 1], device=device)):
        for tensor in (torch.full((2,), rank), torch.full((2,), rank, device=device)):
            received, rows = hvd.alltoall(tensor, splits)
            assert received.device == tensor.device and received.tolist() == [0, 1]
            assert rows.tolist() == [1, 1] and rows.device == torch.as_tensor(splits).device
    with pytest.raises(hvd.HorovodInternalError, match="tensors on cpu, cuda:"):
        hvd.grouped_allreduce([torch.zeros(2), own_tensor])
