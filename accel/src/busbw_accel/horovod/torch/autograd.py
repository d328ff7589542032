"""Gradients of operations, with Horovod's own conventions."""

from typing import Any

import torch

from busbw_accel.horovod.torch import context, requests
from busbw_accel.horovod.torch.calls import Call, begin
from busbw_accel.horovod.torch.requests import OperationKind


class Collective(torch.autograd.Function):  # type: ignore[misc]
    """One call on one or several tensors.

    The result of an all-to-all is followed by the number of rows received from each rank.
    """

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: torch.Tensor) -> Any:
        """The results, one for each tensor."""
        ctx.call, ctx.rows = call, [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        result = context.handles.synchronize(begin(call, tensors))
        if call.kind == OperationKind.ALLTOALL:
            ctx.mark_non_differentiable(result[1])
            ctx.received = result[1]
            return result
        return tuple(result) if call.grouped else result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of the tensors."""
        call: Call = ctx.call
        if call.kind == OperationKind.ALLTOALL:
            grads = grads[:1]
        contiguous = [grad.contiguous() for grad in grads]
        return None, *_BACKWARD[call.kind](ctx, call, contiguous)


def _run(
    call: Call, kind: OperationKind, grads: list[torch.Tensor], **arguments: Any
) -> list[torch.Tensor]:
    """Run another operation over the same process set, which is differentiable too."""
    operation = Call(kind=kind, grouped=call.grouped, process_set=call.process_set, **arguments)
    result = Collective.apply(operation, *grads)
    return list(result) if call.grouped else [result]


def _of_allreduce(ctx: Any, call: Call, grads: list[torch.Tensor]) -> list[torch.Tensor]:
    return _run(
        call,
        OperationKind.ALLREDUCE,
        grads,
        op=call.op,
        prescale=call.prescale,
        postscale=call.postscale,
    )


def _of_allgather(ctx: Any, call: Call, grads: list[torch.Tensor]) -> list[torch.Tensor]:
    """This rank's rows of the average over ranks."""
    reduced = _run(call, OperationKind.ALLREDUCE, grads, op=requests.Average)
    counts = [torch.tensor([count], dtype=torch.int64) for count in ctx.rows]
    rows = _run(call, OperationKind.ALLGATHER, counts)
    me = call.process_set.rank()
    return [
        grad.narrow(0, int(rank_counts[:me].sum()), count)
        for grad, rank_counts, count in zip(reduced, rows, ctx.rows, strict=True)
    ]


def _of_broadcast(ctx: Any, call: Call, grads: list[torch.Tensor]) -> list[torch.Tensor]:
    """The average at the root, zeros elsewhere."""
    reduced = _run(call, OperationKind.ALLREDUCE, grads, op=requests.Average)
    return reduced if context.rank() == call.root else [torch.zeros_like(grad) for grad in reduced]


def _of_alltoall(ctx: Any, call: Call, grads: list[torch.Tensor]) -> list[torch.Tensor]:
    operation = Call(
        kind=OperationKind.ALLTOALL,
        splits=ctx.received,
        tells_splits=True,
        process_set=call.process_set,
    )
    back, _ = Collective.apply(operation, grads[0])
    unsent = ctx.rows[0] - back.shape[0]  # rows that were not sent
    if not unsent:
        return [back]
    return [torch.cat([back, back.new_zeros(unsent, *back.shape[1:])])]


def _of_reducescatter(ctx: Any, call: Call, grads: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gathered gradients; those of a sum times the number of ranks."""
    ranks = call.process_set.size() if call.op == requests.Sum else 1
    factor = ranks * call.prescale * call.postscale
    return _run(call, OperationKind.ALLGATHER, [grad * factor for grad in grads])


_BACKWARD = {
    OperationKind.ALLREDUCE: _of_allreduce,
    OperationKind.ALLGATHER: _of_allgather,
    OperationKind.BROADCAST: _of_broadcast,
    OperationKind.ALLTOALL: _of_alltoall,
    OperationKind.REDUCESCATTER: _of_reducescatter,
}
