"""What holds for tensors of a GPU each, the current one being GPU 0 on every rank, as in scripts
that move tensors and set nothing.
"""

import pytest
import torch

import busbw.horovod.torch as hvd

ROWS, TURNS = 1 << 20, 10


def results_may_be_read_at_once():
    """Nobody waits for the device, and what reads is behind what writes."""
    device, rank = torch.device("cuda", hvd.rank()), hvd.rank()
    for turn in range(TURNS):
        mine = torch.full((ROWS * 2,), turn + rank, dtype=torch.float32, device=device)
        assert (hvd.allreduce(mine, op=hvd.Sum) == 2 * turn + 1).all()
        assert (hvd.broadcast(mine, 1) == turn + 1).all()
        assert (hvd.reducescatter(mine, op=hvd.Sum) == 2 * turn + 1).all()
        assert [float(half.mean()) for half in hvd.alltoall(mine).split(ROWS)] == [turn, turn + 1]
        every = hvd.allgather(mine[: ROWS * (rank + 1)])
        assert [float(part.mean()) for part in every.split([ROWS, ROWS * 2])] == [turn, turn + 1]


def memory_of_a_result_is_nobody_elses_while_it_is_read():
    """A result that is dropped while the GPU has still to read it, and operations after it that
    were asked for before.
    """
    device, rank = torch.device("cuda", hvd.rank()), hvd.rank()
    mine = torch.full((ROWS,), rank, dtype=torch.float32, device=device)
    for _ in range(TURNS):
        handles = [hvd.allgather_async(mine + number) for number in range(4)]
        sums = []
        for handle in handles:
            every = hvd.synchronize(handle)
            torch.cuda._sleep(1 << 20)
            sums.append(every.mean())
            del every
        assert [float(one) for one in sums] == [number + 0.5 for number in range(4)]


def scaling_and_splits_are_horovods():
    """Its GPU kernels multiply 16-bit floats by a factor of 16 bits; what an all-to-all received
    is told where its splits were.
    """
    device, rank = torch.device("cuda", hvd.rank()), hvd.rank()
    mine = torch.arange(-100, 100, dtype=torch.float16, device=device)
    factor = torch.tensor(0.19151945, dtype=torch.float16, device=device)
    assert (
        hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.19151945) == 2 * (factor * mine)
    ).all()
    assert (
        hvd.reducescatter(mine, op=hvd.Sum, postscale_factor=0.19151945)
        == (2 * mine * factor).chunk(2)[rank]
    ).all()
    for splits in ([1, 1], torch.tensor([1, 1]), torch.tensor([1, 1], device=device)):
        for tensor in (torch.full((2,), rank), torch.full((2,), rank, device=device)):
            came, rows = hvd.alltoall(tensor, splits)
            assert came.device == tensor.device and came.tolist() == [0, 1]
            assert rows.tolist() == [1, 1] and rows.device == torch.as_tensor(splits).device
    with pytest.raises(hvd.HorovodInternalError, match="tensors on cpu, cuda:"):
        hvd.grouped_allreduce([torch.zeros(2), mine])
