"""Every matrix as the product of two narrow ones, found by one step of power iteration from the last ones; the rest waits in the residual.

PowerSGD (Vogels, Karimireddy and Jaggi 2019, arXiv 1905.13727) with its error feedback and warm start. A matrix M of n x m, the sum over
ranks of their shares with what was left, becomes P W^T: P = M Q with an orthonormal Q of the step before, and W = M^T P (P^T P)^-1, which
is the projection of M onto the columns of P. P and W are sums over ranks, so every rank multiplies the same bits; what is computed from
P alone, as the inverse is, may differ in its last bits between ranks, and only goes into the sum of W. Biases, norms and small matrices
ride along with P as they are. Nothing waits for the device.
"""

from types import ModuleType

import torch

from busbw.accel.codecs import factors, kernels
from busbw.accel.codecs.base import RESIDUAL, Codec, State, ring_bytes
from busbw.accel.communicator import Communicator

BASIS = "basis"  # W of all matrices, one after the other
SEED = 1905
MOST_IN_KERNELS = 16  # columns of a factor


class PowerSgd(Codec):
    """Sends 4 `matrix_rank` bytes (2 in bf16) for each row and column of a matrix, each twice as an all-reduce does."""

    def exchange(self, part: torch.Tensor, comm: Communicator, state: State, step: int) -> int:
        """See Codec.exchange."""
        settings = self.settings
        if step < settings.warmup_steps:
            return _densely(part, comm)
        rank, feedback = settings.matrix_rank, settings.feedback
        made = factors.layout(self.shapes, rank)
        basis = state[BASIS].view(-1, rank) if BASIS in state else _begin(made.right, rank, part.device)
        means = _means(part, rank)
        total, sent = means.project(made, part, comm, state, basis, feedback=feedback)
        few = settings.factors == "bf16"
        sent, nbytes = _sum(sent, made.left * rank * few, comm)
        right = means.answer(made, total, sent, rank)
        if made.matrices:
            right, more = _sum(right.view(-1), right.numel() * few, comm)
            right, nbytes = right.view(-1, rank), nbytes + more
        wrong = means.multiply(made, sent, right, part, total, comm.size, feedback=feedback)
        state[BASIS] = means.next_basis(made, right, basis, wrong).view(-1)
        if feedback:
            means.restore(total, state.get(RESIDUAL), wrong)
            state[RESIDUAL] = total
        return comm.ring(ring_bytes(nbytes, comm.size))


def _means(part: torch.Tensor, rank: int) -> ModuleType:
    """What computes: kernels, or plain torch."""
    if not kernels.usable(part) or rank > MOST_IN_KERNELS or not part.numel():
        return factors
    from busbw.accel.codecs.kernels import powersgd  # Triton takes a second to import

    return powersgd


def _sum(own: torch.Tensor, rough: int, comm: Communicator) -> tuple[torch.Tensor, int]:
    """Of a flat tensor, over the ranks of the communicator, the same bits on each; and bytes of what a rank has to send.

    The first `rough` elements go as bf16: what that loses of P only turns it a little, and what it loses of W stays in the residual.
    """
    few, rest = own[:rough].bfloat16(), own[rough:]
    if comm.size == 2:
        few, rest = _sum_of_two(few, rest, comm)
    else:
        for one in (few, rest):
            if one.numel():
                comm.all_reduce(one)
    return torch.cat([few.float(), rest]) if rough else rest, 2 * rough + rest.nbytes


def _sum_of_two(few: torch.Tensor, rest: torch.Tensor, comm: Communicator) -> tuple[torch.Tensor, torch.Tensor]:
    """One round of as many bytes as the two of a ring have."""
    rough, end = few.numel(), 2 * rest.numel()
    both = comm.all_gather(torch.cat([rest.view(few.dtype), few, few.new_zeros(rough % 2)]) if rough else rest.view(few.dtype))
    rests, fews = both[:, :end].view(rest.dtype), both[:, end : end + rough].float()
    return fews[0] + fews[1], rests[0] + rests[1]


def _densely(part: torch.Tensor, comm: Communicator) -> int:
    comm.average(part)
    return comm.ring(ring_bytes(part.nbytes, comm.size))


def _begin(rows: int, rank: int, device: torch.device) -> torch.Tensor:
    """The same on every rank."""
    return torch.randn(rows, rank, generator=torch.Generator().manual_seed(SEED), dtype=torch.float32).to(device)
