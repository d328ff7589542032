"""What operations have to do, as contracts that every rank runs; each fails with an exception."""

import time

import pytest
import torch

import busbw_accel.horovod.torch as hvd
from busbw_accel.horovod.torch import context

REDUCED = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
MOVED = (*REDUCED, torch.bool, torch.uint16)


def rank_tensor(*shape, dtype=torch.float32):
    """A tensor filled with this rank's number, from 1."""
    return torch.full(shape, hvd.rank() + 1, dtype=dtype)


def total():
    return sum(range(1, hvd.size() + 1))


def fails(words, kind=hvd.HorovodInternalError):
    return pytest.raises(kind, match=words)


def ranks_and_sizes():
    return [
        hvd.rank(),
        hvd.size(),
        hvd.local_rank(),
        hvd.local_size(),
        hvd.cross_rank(),
        hvd.cross_size(),
        hvd.is_homogeneous(),
    ]


def allreduce_of_all_types():
    for dtype in REDUCED:
        tensor = rank_tensor(2, 3, dtype=dtype)
        assert (hvd.allreduce(tensor, op=hvd.Sum) == total()).all(), dtype
        assert (tensor == hvd.rank() + 1).all(), "the input stays"
        assert hvd.allreduce(tensor, op=hvd.Sum).dtype == dtype


def allreduce_with_all_reductions():
    tensor, size = rank_tensor(4, dtype=torch.float64), hvd.size()
    assert torch.allclose(hvd.allreduce(tensor), torch.full_like(tensor, total() / size))
    assert (hvd.allreduce(tensor, op=hvd.Min) == 1).all()
    assert (hvd.allreduce(tensor, op=hvd.Max) == size).all()
    assert (hvd.allreduce(tensor, op=hvd.Product) == torch.arange(1, size + 1).prod()).all()
    with pytest.warns(DeprecationWarning, match="replaced by op"):
        assert (hvd.allreduce(tensor, average=False) == total()).all()
    with fails("both op and average", ValueError):
        hvd.allreduce(tensor, average=True, op=hvd.Sum)
    with fails("Adasum is not supported", NotImplementedError):
        hvd.allreduce(tensor, op=hvd.Adasum)


def integers_are_scaled_in_fp64_and_cut_off():
    scaled = hvd.allreduce(
        torch.full((3,), 5, dtype=torch.int32),
        op=hvd.Sum,
        prescale_factor=0.5,
        postscale_factor=0.7,
    )
    assert (scaled == int(2 * hvd.size() * 0.7)).all()
    large = 2**53 - 1
    assert (
        hvd.allreduce(
            torch.tensor([large if hvd.rank() == 0 else 0]),
            op=hvd.Sum,
            postscale_factor=1.0 + 2**-52,
        )
        >= large
    )


def halves_are_scaled_in_fp32_on_the_cpu():
    factor = 1 / 3
    value = torch.tensor([1000.0, 3.0], dtype=torch.float16)
    expected = (value.float() * factor).half()
    assert torch.equal(hvd.allreduce(value, op=hvd.Max, prescale_factor=factor), expected)


def in_place_operations_return_their_input():
    tensor = rank_tensor(3)
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert (tensor == total()).all()
    several = [rank_tensor(2), rank_tensor(5, 1)]
    assert all(
        result is tensor
        for result, tensor in zip(hvd.grouped_allreduce_(several, op=hvd.Sum), several, strict=True)
    )
    assert all((result == total()).all() for result in several)
    parameter = torch.nn.Parameter(rank_tensor(2))
    assert hvd.broadcast_(parameter, 0) is parameter
    assert (parameter == 1).all()


def groups_mix_types_and_shapes():
    tensors = [
        rank_tensor(3),
        rank_tensor(2, 2, dtype=torch.int64),
        rank_tensor(1, dtype=torch.float16),
    ]
    for result, tensor in zip(hvd.grouped_allreduce(tensors, op=hvd.Sum), tensors, strict=True):
        assert (result == total()).all()
        assert (result.shape, result.dtype) == (tensor.shape, tensor.dtype)
    for result in hvd.grouped_allgather([rank_tensor(hvd.rank() + 1, 2), rank_tensor(1)]):
        assert result.unique().tolist() == list(range(1, hvd.size() + 1))
    assert [
        len(result)
        for result in hvd.grouped_reducescatter(
            [rank_tensor(hvd.size()), rank_tensor(2 * hvd.size(), 3)], op=hvd.Sum
        )
    ] == [1, 2]


def operations_match_by_name_in_any_order():
    names = [f"any order {number}" for number in range(20)]
    order = names if hvd.rank() % 2 else names[::-1]
    handles = {
        name: hvd.allreduce_async(
            rank_tensor(4) * (1 + int(name.split()[-1])), name=name, op=hvd.Sum
        )
        for name in order
    }
    for name in names:
        assert (hvd.synchronize(handles[name]) == total() * (1 + int(name.split()[-1]))).all()


def asynchronous_operations_are_not_done_at_once():
    tensors = [torch.ones(200, 200) for _ in range(20)]
    handles = [hvd.allreduce_async(tensor, op=hvd.Sum) for tensor in tensors]
    polled = [hvd.poll(handle) for handle in handles]
    assert not all(polled)
    while not all(hvd.poll(handle) for handle in handles):
        time.sleep(0.001)
    assert all((hvd.synchronize(handle) == hvd.size()).all() for handle in handles)
    assert hvd.synchronize(handles[0]) is None, "a handle gives its result once"


def allgather_takes_any_first_dimensions():
    for dtype in MOVED:
        own = torch.full((hvd.rank() * 2, 3), hvd.rank() % 2, dtype=torch.int32).to(dtype)
        result = hvd.allgather(own)
        assert result.dtype == dtype and result.shape == (
            sum(2 * rank for rank in range(hvd.size())),
            3,
        )
        begin = sum(2 * rank for rank in range(hvd.rank()))
        assert torch.equal(result[begin : begin + len(own)].int(), own.int())
    assert hvd.allgather(torch.empty(0, 4)).shape == (0, 4)


def broadcast_takes_a_global_root_rank():
    for root in range(hvd.size()):
        for dtype in MOVED:
            assert torch.equal(
                hvd.broadcast(rank_tensor(2, 2).to(dtype), root).int(),
                torch.full((2, 2), root + 1.0).to(dtype).int(),
            )
    tensor = rank_tensor(2)
    hvd.synchronize(hvd.broadcast_async(tensor, hvd.size() - 1))
    assert (tensor == hvd.rank() + 1).all()
    hvd.synchronize(hvd.broadcast_async_(tensor, hvd.size() - 1))
    assert (tensor == hvd.size()).all()


def alltoall_sends_rows():
    rank, size = hvd.rank(), hvd.size()
    for dtype in REDUCED:
        result = hvd.alltoall(torch.arange(size).repeat_interleave(2).to(dtype))
        assert result.tolist() == [rank] * 2 * size
    result, rows = hvd.alltoall(
        rank_tensor(sum(range(1, size + 1)), 2), splits=list(range(1, size + 1))
    )
    assert rows.tolist() == [rank + 1] * size and rows.dtype == torch.int32
    assert result[:, 0].tolist() == [value for value in range(1, size + 1) for _ in range(rank + 1)]
    received, rows = hvd.synchronize(
        hvd.alltoall_async(torch.ones(size), torch.zeros(size, dtype=torch.int32))
    )
    assert received.shape == (0,) and rows.tolist() == [0] * size


def alltoall_refuses_splits_at_once():
    tensor = torch.ones(hvd.size() * 2)
    for splits in (
        [hvd.size() * 3] * hvd.size(),
        [1] * (hvd.size() + 1),
        [-1] * hvd.size(),
        torch.ones(hvd.size()),
    ):
        with fails("splits", ValueError):
            hvd.alltoall(tensor, splits=splits)
    with fails("cannot be divided evenly", ValueError):
        hvd.alltoall(torch.ones(hvd.size() + 1))


def reducescatter_gives_first_ranks_one_row_more():
    rank, size = hvd.rank(), hvd.size()
    for dtype in REDUCED:
        result = hvd.reducescatter(torch.ones(2 * size + 1, 2, dtype=dtype), op=hvd.Sum)
        assert result.shape == (3 if rank == 0 else 2, 2) and (result == size).all(), (
            dtype,
            result,
        )
    assert (hvd.reducescatter(rank_tensor(size)) == total() / size).all()
    rows = torch.arange(2.0 * size + 1)
    first = 0 if rank == 0 else 2 * rank + 1
    assert (
        hvd.reducescatter(rows, op=hvd.Max).tolist()
        == rows[first : first + (3 if rank == 0 else 2)].tolist()
    )
    assert hvd.reducescatter(torch.ones(1, 2), op=hvd.Sum).shape == (1 if rank == 0 else 0, 2)
    scaled = hvd.reducescatter(
        torch.ones(size), op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0
    )
    assert (scaled == 6 * size).all()


def scalars_have_no_rows():
    for operation in (hvd.allgather, hvd.reducescatter):
        with fails("gave a scalar"):
            operation(torch.tensor(1.0))


def disagreement_fails_on_all_ranks_and_later_operations_work():
    rank = hvd.rank()
    cases = {
        "shape": lambda: hvd.allreduce(torch.ones(3 + rank), name="shapes"),
        "number of tensors": lambda: hvd.grouped_allreduce(
            [torch.ones(1)] * (rank + 1), name="numbers"
        ),
        "type": lambda: hvd.allreduce(
            torch.ones(3, dtype=torch.float64 if rank else torch.float32), name="types"
        ),
        "reduction": lambda: hvd.allreduce(
            torch.ones(3), name="ops", op=hvd.Min if rank else hvd.Sum
        ),
        "prescale factor": lambda: hvd.allreduce(
            torch.ones(3), name="pre", prescale_factor=1.0 + rank
        ),
        "postscale factor": lambda: hvd.allreduce(
            torch.ones(3), name="post", postscale_factor=1.0 + rank
        ),
        "root rank": lambda: hvd.broadcast(torch.ones(3), rank, name="roots"),
        "shape beyond the first dimension": lambda: hvd.allgather(
            torch.ones(3, 2 + rank), name="rows"
        ),
    }
    for words, call in cases.items():
        with fails(f"ranks disagree on the {words}"):
            call()
        assert (hvd.allreduce(rank_tensor(2), op=hvd.Sum) == total()).all()
    with fails("root rank 99 is not one"):
        hvd.broadcast(torch.ones(1), 99)


def a_known_name_may_change_its_shape():
    for length in (3, 3, 3, 5, 5, 2):
        assert (hvd.allreduce(rank_tensor(length), name="changing", op=hvd.Sum) == total()).all()
    with fails("ranks disagree on the shape"):
        hvd.allreduce(rank_tensor(2 if hvd.rank() else 7), name="changing")
    assert (hvd.allreduce(rank_tensor(2), name="changing", op=hvd.Sum) == total()).all()


def a_name_in_flight_is_refused_at_once():
    if hvd.rank() == 0:
        first = hvd.allreduce_async(rank_tensor(3), name="twice", op=hvd.Sum)
        with fails("still running", ValueError):
            hvd.allreduce_async(rank_tensor(3), name="twice")
        hvd.barrier()
    else:
        hvd.barrier()
        first = hvd.allreduce_async(rank_tensor(3), name="twice", op=hvd.Sum)
    assert (hvd.synchronize(first) == total()).all()


def what_cannot_be_sent_is_refused():
    with fails("not contiguous", ValueError):
        hvd.allreduce(torch.ones(3, 4).t())
    with fails("torch.sparse_coo tensor", ValueError):
        hvd.allreduce(torch.eye(3).to_sparse())
    with fails("of torch.complex64 is not possible", ValueError):
        hvd.allreduce(torch.ones(2, dtype=torch.complex64))
    with fails("unknown op 17", ValueError):
        hvd.allreduce(torch.ones(2), op=17)
    # Numbers in names go on also where nothing was sent.
    assert (hvd.allreduce(rank_tensor(2), op=hvd.Sum) == total()).all()


def joined_ranks_contribute_zeros():
    rank, size = hvd.rank(), hvd.size()
    hvd.allreduce(rank_tensor(2), name="uneven", op=hvd.Sum)
    for step in range(rank + 1):
        result = hvd.allreduce(torch.ones(2), name="uneven")
        assert torch.allclose(result, torch.full((2,), (size - step) / size)), (
            "it is still divided by all"
        )
    last = hvd.join()
    assert last == size - 1
    assert (hvd.allreduce(rank_tensor(2), name="uneven", op=hvd.Sum) == total()).all()


def only_allreduce_works_with_joined_ranks():
    if hvd.rank() == 0:
        hvd.join()
        return
    for call in (
        lambda: hvd.allgather(torch.ones(2), name="g"),
        lambda: hvd.broadcast(torch.ones(2), 1, name="b"),
        lambda: hvd.alltoall(torch.ones(hvd.size()), name="a"),
        lambda: hvd.reducescatter(torch.ones(hvd.size()), name="r"),
    ):
        with fails(r"not possible while ranks \[0\] have joined"):
            call()
    hvd.join()


def generated_names_match_after_a_join():
    rank, size = hvd.rank(), hvd.size()
    for first in range(size):
        if rank != first:
            with fails(f"not possible while ranks \\[{first}\\] have joined"):
                hvd.allgather(torch.ones(2))
        last = hvd.join()
        assert hvd.allgather_object(last) == [last] * size and last != first
    assert (hvd.allreduce(rank_tensor(2), op=hvd.Sum) == total()).all()


def sparse_tensors_are_gathered():
    entries = [[0, hvd.rank() + 1]], torch.ones(2, 3)
    tensor = torch.sparse_coo_tensor(*entries, (hvd.size() + 2, 3), check_invariants=True)
    result = hvd.sparse_allreduce_async(tensor, "sparse", hvd.Sum)().to_dense()
    assert (result[0] == hvd.size()).all() and (result[1:-1] == 1).all() and (result[-1] == 0).all()
    assert (hvd.sparse_allreduce_async(tensor, "sparse", hvd.Average)().to_dense()[0] == 1).all()


def compression_narrows_and_widens():
    result = hvd.allreduce(rank_tensor(3), compression=hvd.Compression.fp16)
    assert result.dtype == torch.float32 and torch.allclose(
        result, torch.full((3,), total() / hvd.size()), atol=1e-3
    )
    assert hvd.Compression.fp16.compress(torch.ones(1))[0].dtype == torch.float16
    assert (
        hvd.reducescatter(rank_tensor(hvd.size()), compression=hvd.Compression.fp16).dtype
        == torch.float32
    )


def objects_arrive_unchanged():
    obj = {"rank": hvd.rank(), "list": [1] * 1000 * hvd.rank()}
    assert hvd.broadcast_object(obj, root_rank=hvd.size() - 1) == {
        "rank": hvd.size() - 1,
        "list": [1] * 1000 * (hvd.size() - 1),
    }
    assert hvd.broadcast_object(hvd.rank() or None, 0, name="by name") is None
    assert [received["rank"] for received in hvd.allgather_object(obj)] == list(range(hvd.size()))


def a_steady_step_negotiates_nothing():
    def step():
        handles = [
            hvd.allreduce_async_(rank_tensor(5), name=f"steady {number}", op=hvd.Sum)
            for number in range(50)
        ]
        assert all((hvd.synchronize(handle) == total()).all() for handle in handles)

    counts = context.current().controller.counts
    step()
    hvd.barrier()
    before = counts.negotiations
    for _ in range(20):
        step()
    assert counts.negotiations == before
    return counts.exchanges


def more_names_than_the_cache_holds():
    for _ in range(3):
        for number in range(12):
            assert (
                hvd.allreduce(rank_tensor(2), name=f"many {number}", op=hvd.Sum) == total()
            ).all()
