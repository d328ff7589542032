"""Positions and values of some elements as bytes of a fixed size: 2 bytes a position inside blocks of 65536 elements, 2 or 4 a value.

Layout: scale (fp32), count of entries of each block (int32), values, positions (uint16). The values of fp16 are shares of the scale, so
that none overflows. About 2 of 3.2 bytes (fp16) are what entropy leaves to save at a share of 1 %; decoding that costs more than it saves.
"""

import torch

BLOCK = 1 << 16
_VALUES = {"fp32": torch.float32, "fp16": torch.float16}
_WIDTHS = {"fp32": 4, "fp16": 2}


def size(room: int, length: int, fmt: str) -> int:
    """Bytes for `room` entries of `length` elements."""
    return 4 + 4 * _blocks(length) + room * (_WIDTHS[fmt] + 2)


def pack(total: torch.Tensor, index: torch.Tensor, count: torch.Tensor, fmt: str) -> torch.Tensor:
    """The elements of `total` (fp32) at `index` (ascending); entries from `count` on are padding with value zero."""
    real = torch.arange(index.numel(), device=index.device) < count
    chosen = torch.where(real, total[index], 0.0)
    scale = torch.ones((), dtype=torch.float32, device=total.device)
    if fmt == "fp16":
        largest = torch.where(torch.isfinite(chosen), chosen.abs(), 0.0).amax()
        scale = torch.where(largest > 0, largest, 1.0)
    sent = (chosen / scale).to(_VALUES[fmt])
    blocks = _blocks(total.numel())
    counts = torch.zeros(blocks, dtype=torch.int32, device=index.device)
    counts.scatter_add_(0, index // BLOCK, real.to(torch.int32))
    head = [scale.reshape(1).view(torch.uint8), counts.view(torch.uint8)]
    return torch.cat([*head, sent.view(torch.uint8), (index % BLOCK).to(torch.uint16).view(torch.uint8)])


def values(blob: torch.Tensor, room: int, fmt: str) -> torch.Tensor:
    """What others will read as the values, in fp32."""
    width = _WIDTHS[fmt]
    first = blob.numel() - room * (width + 2)
    scale = blob[:4].clone().view(torch.float32)
    return blob[first : first + room * width].clone().view(_VALUES[fmt]).float() * scale


def unpack(blob: torch.Tensor, room: int, length: int, fmt: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions (int64) and values (fp32) of all entries; padding is at position 0 with value zero."""
    blocks = _blocks(length)
    ends = torch.cumsum(blob[4 : 4 + 4 * blocks].clone().view(torch.int32), 0)
    number = torch.arange(room, device=blob.device)
    block = torch.searchsorted(ends, number, right=True)
    local = blob[blob.numel() - 2 * room :].clone().view(torch.uint16).to(torch.int64)
    index = torch.where(number < ends[-1], block * BLOCK + local, 0)
    return index, values(blob, room, fmt)


def _blocks(length: int) -> int:
    return -(-length // BLOCK)
