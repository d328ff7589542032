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
from busbw.accel.line import Line

BASIS = "basis"  # W of all matrices, one after the other
SEED = 1905
MOST_IN_KERNELS = 16  # columns of a factor


class PowerSgd(Codec):
    """Sends 4 `matrix_rank` bytes for each row and column of a matrix, each twice as an all-reduce does."""

    def exchange(self, part: torch.Tensor, line: Line, state: State, step: int) -> int:
        """See Codec.exchange."""
        settings = self.settings
        if step < settings.warmup_steps:
            return _densely(part, line)
        rank, feedback = settings.matrix_rank, settings.feedback
        made = factors.layout(self.shapes, rank)
        basis = state[BASIS].view(-1, rank) if BASIS in state else _begin(made.right, rank, part.device)
        means = _means(part, rank)
        total, sent = means.project(made, part, line, state, basis, feedback=feedback)
        sent = _sum(sent, line)
        right = means.answer(made, total, sent, rank)
        if made.matrices:
            right = _sum(right, line)
        wrong = means.multiply(made, sent, right, part, total, line.size, feedback=feedback)
        state[BASIS] = means.next_basis(made, right, basis, wrong).view(-1)
        if feedback:
            means.restore(total, state.get(RESIDUAL), wrong)
            state[RESIDUAL] = total
        return line.ring(ring_bytes(sent.nbytes, line.size)) + line.ring(ring_bytes(right.nbytes, line.size))


def _means(part: torch.Tensor, rank: int) -> ModuleType:
    """What computes: kernels, or plain torch."""
    if not kernels.usable(part) or rank > MOST_IN_KERNELS or not part.numel():
        return factors
    from busbw.accel.codecs.kernels import powersgd  # Triton takes a second to import

    return powersgd


def _sum(own: torch.Tensor, line: Line) -> torch.Tensor:
    """Over the ranks of the line, the same bits on each. Two ranks have it in one round of as many bytes as the two of a ring have."""
    if line.size != 2:
        line.all_reduce(own)
        return own
    both = line.all_gather(own).view(2, *own.shape)
    return both[0] + both[1]


def _densely(part: torch.Tensor, line: Line) -> int:
    line.average(part)
    return line.ring(ring_bytes(part.nbytes, line.size))


def _begin(rows: int, rank: int, device: torch.device) -> torch.Tensor:
    """The same on every rank."""
    return torch.randn(rows, rank, generator=torch.Generator().manual_seed(SEED), dtype=torch.float32).to(device)
