"""Each collective as torch.distributed calls on typed views of the buffers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from busbw.engines.base import Call, Launch, Steps


@dataclass(slots=True)
class Tensors:
    """One call's views; `scratch` exists for rooted reductions."""

    group: Any
    call: Call
    send: torch.Tensor
    recv: torch.Tensor
    scratch: torch.Tensor | None

    @property
    def rank(self) -> int:
        """This rank in the group."""
        return int(dist.get_rank(self.group))

    @property
    def ranks(self) -> int:
        """Ranks of the group."""
        return int(dist.get_world_size(self.group))

    @property
    def root(self) -> int:
        """The root, as PyTorch counts it: in the whole job."""
        return self.job_rank(self.call.root)

    def job_rank(self, rank: int) -> int:
        """The rank in the whole job of a rank of the group."""
        return int(dist.get_global_rank(self.group, rank))

    @property
    def op(self) -> Any:
        """torch's operator; mulsum is NCCL's pre-multiplied sum."""
        name = self.call.op.name if self.call.op else "sum"
        if name == "mulsum":
            return dist._make_nccl_premul_sum(float(1 + self.rank % 2))
        return getattr(dist.ReduceOp, {"prod": "PRODUCT"}.get(name, name.upper()))

    def parts(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """One view a rank."""
        count = self.call.layout.count
        return [tensor[r * count : (r + 1) * count] for r in range(self.ranks)]


def _after_copy(target: torch.Tensor, source: torch.Tensor, launch: Launch) -> Launch:
    def run() -> None:
        target.copy_(source)
        launch()

    return run


def _all_reduce(t: Tensors) -> Launch:
    launch = partial(dist.all_reduce, t.recv, t.op, t.group)
    return launch if t.call.in_place else _after_copy(t.recv, t.send, launch)


def _reduce(t: Tensors) -> Launch:
    if t.rank == t.call.root:
        launch = partial(dist.reduce, t.recv, t.root, t.op, t.group)
        return launch if t.call.in_place else _after_copy(t.recv, t.send, launch)
    assert t.scratch is not None
    # PyTorch may leave partial results in the tensor of a rank that receives nothing.
    return _after_copy(t.scratch, t.send, partial(dist.reduce, t.scratch, t.root, t.op, t.group))


def _broadcast(t: Tensors) -> Launch:
    launch = partial(dist.broadcast, t.recv, t.root, t.group)
    return (
        _after_copy(t.recv, t.send, launch)
        if t.rank == t.call.root and not t.call.in_place
        else launch
    )


def _gather(t: Tensors) -> Launch:
    targets = t.parts(t.recv) if t.rank == t.call.root else None
    return partial(dist.gather, t.send, targets, t.root, t.group)


def _scatter(t: Tensors) -> Launch:
    sources = t.parts(t.send) if t.rank == t.call.root else None
    return partial(dist.scatter, t.recv, sources, t.root, t.group)


def _alltoallv(t: Tensors) -> Launch:
    matrix = t.call.layout.matrix
    recvs, sends = [row[t.rank] for row in matrix], list(matrix[t.rank])
    # In place the two buffers are one, of the larger total; PyTorch wants each side exactly as long
    # as its counts.
    return partial(
        dist.all_to_all_single, t.recv[: sum(recvs)], t.send[: sum(sends)], recvs, sends, t.group
    )


def _exchange(t: Tensors, to: int, source: torch.Tensor, of: int, target: torch.Tensor) -> Launch:
    if to == t.rank:
        return lambda: target.copy_(source)

    def run() -> None:
        pair = [
            dist.P2POp(dist.isend, source, t.job_rank(to), t.group),
            dist.P2POp(dist.irecv, target, t.job_rank(of), t.group),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    return run


def _hypercube(t: Tensors) -> Launch:
    count, rank = t.call.layout.count, t.rank
    steps: list[Launch] = [] if t.call.in_place else [lambda: t.parts(t.recv)[rank].copy_(t.send)]
    for step in range(t.ranks.bit_length() - 1):
        partner, parts = rank ^ 1 << step, count << step
        have, want = (rank >> step << step) * count, (partner >> step << step) * count
        steps.append(
            _exchange(t, partner, t.recv[have : have + parts], partner, t.recv[want : want + parts])
        )
    return Steps(steps)


CALLS: dict[str, Callable[[Tensors], Launch]] = {
    "all_reduce": _all_reduce,
    "all_gather": lambda t: partial(dist.all_gather_into_tensor, t.recv, t.send, t.group),
    "reduce_scatter": lambda t: partial(dist.reduce_scatter_tensor, t.recv, t.send, t.op, t.group),
    "broadcast": _broadcast,
    "reduce": _reduce,
    "alltoall": lambda t: partial(dist.all_to_all_single, t.recv, t.send, None, None, t.group),
    "alltoallv": _alltoallv,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": lambda t: _exchange(
        t, (t.rank + 1) % t.ranks, t.send, (t.rank - 1) % t.ranks, t.recv
    ),
    "hypercube": _hypercube,
}
