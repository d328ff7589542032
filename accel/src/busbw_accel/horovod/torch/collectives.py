"""How each operation runs over a torch.distributed group.

Data is sent as element types that the backend supports.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from busbw_accel.horovod.torch import requests
from busbw_accel.horovod.torch.requests import Request, Response


def reduce_(flat: torch.Tensor, request: Request, group: dist.ProcessGroup) -> torch.Tensor:
    """All-reduce with scaling before and after.

    Works in place if the backend supports the type, else on a copy.
    """
    requests.scale_(flat, request.prescale)
    sent = flat.to(requests.CARRIERS.get(flat.dtype, flat.dtype))
    if sent.numel():
        dist.all_reduce(sent, op=requests.TORCH_OPS[request.op], group=group)
    requests.scale_(sent, requests.postscale(request.op, request.postscale, group.size()))
    return sent.to(flat.dtype)


def allgather(tensor: torch.Tensor, rows: Sequence[int], group: dist.ProcessGroup) -> torch.Tensor:
    """The tensors of all ranks, concatenated along dimension 0. `rows`: their first dimensions."""
    largest, shape = max(rows), tensor.shape[1:]
    padding = (largest - tensor.shape[0]) * _row_bytes(tensor)
    padded = torch.nn.functional.pad(_as_bytes(tensor), (0, padding))
    gathered = padded.new_empty(len(rows) * padded.numel())
    if gathered.numel():
        dist.all_gather_into_tensor(gathered, padded, group=group)
    parts = gathered.view(tensor.dtype).view(len(rows), largest, *shape)
    if min(rows) == largest:
        return parts.flatten(0, 1)
    return torch.cat([part[:number] for part, number in zip(parts, rows, strict=True)])


def broadcast_(tensor: torch.Tensor, root: int, group: dist.ProcessGroup) -> None:
    """Broadcast in place; `root` is a rank of the job."""
    if tensor.numel():
        dist.broadcast(_as_bytes(tensor), src=root, group=group)


def alltoall(
    tensor: torch.Tensor, splits: Sequence[int], group: dist.ProcessGroup
) -> tuple[torch.Tensor, list[int]]:
    """All-to-all by rows. Returns the received rows and how many came from each rank."""
    sent = torch.tensor(splits, dtype=torch.int64, device=tensor.device)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    rows, row = received.tolist(), _row_bytes(tensor)
    out = tensor.new_empty(sum(rows), *tensor.shape[1:])
    used = tensor[: sum(splits)]
    if row:
        dist.all_to_all_single(
            _as_bytes(out),
            _as_bytes(used),
            [number * row for number in rows],
            [number * row for number in splits],
            group=group,
        )
    return out, rows


def reducescatter(tensor: torch.Tensor, request: Request, group: dist.ProcessGroup) -> torch.Tensor:
    """This rank's rows of the reduction.

    If rows do not divide evenly, the first ranks get one more.
    """
    ranks, me = group.size(), group.rank()
    base, extra = divmod(tensor.shape[0], ranks)
    rows = [base + (rank < extra) for rank in range(ranks)]
    scaled = requests.scale_(tensor.clone(), request.prescale)
    sent = scaled.to(requests.CARRIERS.get(tensor.dtype, tensor.dtype))
    if extra:
        padded = []
        for part in sent.split(rows):
            padded += [part, part.new_zeros(base + 1 - part.shape[0], *part.shape[1:])]
        sent = torch.cat(padded)
    out = sent.new_empty(sent.shape[0] // ranks, *tensor.shape[1:])
    if out.numel():
        dist.reduce_scatter_tensor(out, sent, op=requests.TORCH_OPS[request.op], group=group)
    requests.scale_(out, requests.postscale(request.op, request.postscale, ranks))
    return out[: rows[me]].to(tensor.dtype).contiguous()


def rows_of(answer: Response, number: int, members: Sequence[int]) -> list[int]:
    """The first dimension of tensor `number` of each member."""
    return [answer.requests[rank].shapes[number][0] for rank in members]


def reduce_fused(
    tensors: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    reduce: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Reduce tensors of one type as a single flat tensor, into `outputs`.

    A single tensor is copied only to its output.
    """
    if len(tensors) == 1:
        if outputs[0] is not tensors[0]:
            outputs[0].copy_(tensors[0])
        flat = outputs[0].view(-1)
        reduced = reduce(flat)
        if reduced is not flat:
            flat.copy_(reduced)
        return
    reduced = reduce(torch.cat([tensor.reshape(-1) for tensor in tensors]))
    parts = reduced.split([output.numel() for output in outputs])
    for output, part in zip(outputs, parts, strict=True):
        output.copy_(part.view_as(output))


def _row_bytes(tensor: torch.Tensor) -> int:
    return int(tensor.element_size() * math.prod(tensor.shape[1:]))


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes: Gloo has no int16, and moving data needs no type."""
    return tensor.view(-1).view(torch.uint8)
