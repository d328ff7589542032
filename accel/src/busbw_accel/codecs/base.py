"""The interface of codecs, and what they share.

The constants and formulas are used by plain torch and by the kernels, so both give the same
results.
"""

from abc import ABC, abstractmethod

import torch

from busbw_accel.codecs import kernels
from busbw_accel.communicator import Bytes, Communicator
from busbw_accel.methods import BLOCK
from busbw_accel.settings import Settings

# Top-k. The threshold aims at this share of the entries, so that usually none overflow.
FILL = 0.95
# Counts fall with a power of the threshold: 2 for heavy tails, 8 for Gaussian ones. This exponent
# converges for all.
CORRECTION = 1 / 8
# If the count is off by more than this factor, a new threshold is computed from a sample.
FAR = 2
# Odd multipliers that scatter (32-bit golden ratio, and another): for the start of a selection, and
# for sample positions.
TURN, STEP_TURN = 2_654_435_761, 40_503

SCALE_BYTES = 4  # of a scale of int8 and int4
GRAIN = 4 * BLOCK  # of the length of a row of int8 and int4
# Smaller scales have too few significant bits to divide by.
LEAST_SCALE = torch.finfo(torch.float32).tiny
# What was not sent, in the positions of the gradient. Length: that of the part.
RESIDUAL = "residual"
# The velocity of momentum correction, in the same positions.
VELOCITY = "velocity"
# The second rounding error, kept by the rank that sums a shard. Length: that of the shard.
SUM_RESIDUAL = "sum_residual"


def most_steps(bits: int) -> int:
    """The largest `bits`-bit integer whose negative exists."""
    return int(2 ** (bits - 1)) - 1


def row_bytes(length: int, bits: int) -> int:
    """Bytes of a row of `length` elements (a multiple of BLOCK): scales, then integers."""
    return SCALE_BYTES * length // BLOCK + length * bits // 8


def row_length(elements: int) -> int:
    """The length of a row for so many elements: scales and integers are aligned to 16 bytes."""
    return -(-elements // GRAIN) * GRAIN


State = dict[str, torch.Tensor]


class Codec(ABC):
    """Averages a part of a gradient over the ranks of a communicator."""

    def __init__(self, settings: Settings, shapes: tuple[tuple[int, ...], ...] = ()) -> None:
        """`shapes` are those of the part's parameters in order, for codecs that need matrices."""
        self.settings, self.shapes = settings, shapes

    @abstractmethod
    def exchange(self, part: torch.Tensor, comm: Communicator, state: State, step: int) -> Bytes:
        """Replace `part` by its average over the ranks, with the same bits on every rank.

        `part` is one-dimensional, contiguous and floating, and has the same length on every rank.
        `state` keeps fp32 tensors of the codec between calls for the same part. `step` counts the
        calls from 0. A codec whose host waits for the device holds up the buckets behind this one.

        Returns the bytes that leave this rank's host.
        """

    # The two halves of an exchange, for codecs with `CodecInfo.shards`.

    def reduce_scatter(
        self, rows: torch.Tensor, shard: torch.Tensor, comm: Communicator, state: State, step: int
    ) -> Bytes:
        """Set `shard` to this rank's row of the average over the ranks.

        `rows` is contiguous and floating: [ranks, elements of `shard`]. It may be changed. `state`,
        `step` and the result are as in `exchange`.
        """
        raise NotImplementedError

    def all_gather(self, shard: torch.Tensor, gathered: torch.Tensor, comm: Communicator) -> Bytes:
        """Set `gathered` to the shards of all ranks, with the same bits on every rank.

        It is flat, in the order of ranks. The own shard is as the other ranks receive it. Returns
        the bytes that leave this rank's host.
        """
        raise NotImplementedError


def share(part: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """This rank's share of the average, in fp32.

    Division in a narrower format would lose digits.
    """
    return part.float() / comm.size


def carried(part: torch.Tensor, comm: Communicator, state: State, feedback: bool) -> torch.Tensor:
    """This rank's share plus the residual, as a new tensor."""
    if not feedback or RESIDUAL not in state:
        return share(part, comm)
    if comm.size & (comm.size - 1):
        return share(part, comm).add_(state[RESIDUAL])
    # This is one pass over memory. It gives the same bits, since a power of two divides exactly.
    return torch.add(state[RESIDUAL], part, alpha=1 / comm.size)


def sum_rows(rows: torch.Tensor) -> torch.Tensor:
    """Sum row by row in fp32, in a fixed order of additions. Rows of fp32 may be changed."""
    total = rows[0].float()
    for row in rows[1:]:
        total += row
    return total


def is_finite(part: torch.Tensor) -> torch.Tensor:
    """Whether all elements are, on the device."""
    # On CPUs a norm with ord=inf, which is not vectorized, takes 17 times as long.
    return torch.stack(torch.aminmax(part)).isfinite().all()


def keep(state: State, residuals: State, result: torch.Tensor) -> None:
    """Keep `residuals` for the next step.

    If the result is not finite, the optimizer skips the step, and the former state is kept. The
    result, in the format of the gradient, is the same on every rank. So the decision, which is made
    on the device, is the same too.
    """
    finite = is_finite(result)
    for name, residual in residuals.items():
        state[name] = torch.where(finite, residual, state.get(name, 0.0))


def poison_if_failed(part: torch.Tensor, comm: Communicator) -> None:
    """Set `part` to NaN, on the device, if the exchange it was computed from has failed."""
    failed = comm.failed
    if failed is None:
        return
    if kernels.usable(part):
        from busbw_accel.codecs.kernels import not_finite  # Triton takes a second to import

        not_finite.spoil(part, failed)
    else:
        part.copy_(torch.where(failed != 0, torch.nan, part))


def ring_bytes(nbytes: int, ranks: int) -> int:
    """Bytes that each rank sends in an all-reduce of `nbytes`: 2 (n-1)/n of them, for both ring
    and halving-doubling.
    """
    return 2 * (ranks - 1) * nbytes // ranks
