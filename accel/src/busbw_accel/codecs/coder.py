"""Picks the coder of a row: Triton on GPUs, busbw-native on CPUs, or plain torch."""

import torch

from busbw_accel.codecs import exponents


def encode(row: torch.Tensor) -> torch.Tensor:
    """The bytes of a row, see `exponents`. On a GPU the host waits for their number."""
    return exponents.encode(row)


def decode(coded: torch.Tensor, row: torch.Tensor) -> None:
    """Fill `row` by the elements of its bytes; see `exponents.decode`."""
    exponents.decode(coded, row)
