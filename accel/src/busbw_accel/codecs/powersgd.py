"""PowerSGD: sends each matrix as the product of two narrow factors.

The factors are from one step of power iteration. The difference stays in the residual.

After Vogels, Karimireddy and Jaggi 2019 (arXiv 1905.13727), with error feedback and warm start. M
(n x m) is the sum over ranks of share plus residual. It becomes P W^T with P = M Q, Q the
orthonormal basis of the previous step, and W = M^T P (P^T P)^-1, which projects M onto the columns
of P. P and W are sums over ranks, so every rank multiplies the same bits. Values computed from P
alone, such as the inverse, may differ in the last bits between ranks, but only enter the sum of W.
Biases, norms and small matrices are sent with P, unchanged. The host never waits for the device.
"""

from types import ModuleType

import torch

from busbw_accel.codecs import kernels, powersgd_math
from busbw_accel.codecs.base import RESIDUAL, Codec, State, ring_bytes
from busbw_accel.communicator import Bytes, Communicator

BASIS = "basis"  # W of all matrices, one after the other
SEED = 1905
MAX_IN_KERNELS = 16  # columns of a factor


class PowerSgd(Codec):
    """All-reduces 4 `matrix_rank` bytes (2 in bf16) for each row and each column of a matrix."""

    def exchange(self, part: torch.Tensor, comm: Communicator, state: State, step: int) -> Bytes:
        settings = self.settings
        if step < settings.warmup_steps:
            comm.average(part)
            return comm.ring(ring_bytes(part.nbytes, comm.size))
        rank, feedback = settings.matrix_rank, settings.feedback
        layout = powersgd_math.layout(self.shapes, rank)
        if BASIS in state:
            basis = state[BASIS].view(-1, rank)
        else:
            basis = _first_basis(layout.right, rank, part.device)
        means = _means(part, rank)
        total, sent = means.project(layout, part, comm, state, basis, feedback=feedback)
        few = settings.factors == "bf16"
        sent, nbytes = _sum(sent, layout.left * rank * few, comm)
        right = means.answer(layout, total, sent, rank)
        if layout.matrices:
            right, more = _sum(right.view(-1), right.numel() * few, comm)
            right, nbytes = right.view(-1, rank), nbytes + more
        skipped = means.multiply(layout, sent, right, part, total, comm.size, feedback=feedback)
        state[BASIS] = means.next_basis(layout, right, basis, skipped).view(-1)
        if feedback:
            means.restore(total, state.get(RESIDUAL), skipped)
            state[RESIDUAL] = total
        return comm.ring(ring_bytes(nbytes, comm.size))


def _means(part: torch.Tensor, rank: int) -> ModuleType:
    """The implementation to use: kernels, or plain torch."""
    if not kernels.usable(part) or rank > MAX_IN_KERNELS or not part.numel():
        return powersgd_math
    from busbw_accel.codecs.kernels import powersgd  # Triton takes a second to import

    return powersgd


def _sum(tensor: torch.Tensor, rough: int, comm: Communicator) -> tuple[torch.Tensor, int]:
    """Sum a flat tensor over ranks, with the same bits on each.

    The first `rough` elements are sent as bf16. The error of P only rotates the basis slightly, and
    the error of W stays in the residual. Also returns the bytes that a rank sends.
    """
    few, precise = tensor[:rough].bfloat16(), tensor[rough:]
    if comm.size == 2:
        few, precise = _sum_of_two(few, precise, comm)
    else:
        for tensors in (few, precise):
            if tensors.numel():
                comm.all_reduce(tensors)
    return torch.cat([few.float(), precise]) if rough else precise, 2 * rough + precise.nbytes


def _sum_of_two(
    few: torch.Tensor, precise: torch.Tensor, comm: Communicator
) -> tuple[torch.Tensor, torch.Tensor]:
    """One round with as many bytes as the two rounds of a ring."""
    rough, end = few.numel(), 2 * precise.numel()
    sent = precise.view(few.dtype)
    if rough:
        sent = torch.cat([sent, few, few.new_zeros(rough % 2)])
    both = comm.all_gather(sent)
    rests, fews = both[:, :end].view(precise.dtype), both[:, end : end + rough].float()
    return fews[0] + fews[1], rests[0] + rests[1]


def _first_basis(rows: int, rank: int, device: torch.device) -> torch.Tensor:
    """The first basis, the same on every rank."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(rows, rank, generator=generator, dtype=torch.float32).to(device)
