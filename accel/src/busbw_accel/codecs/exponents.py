"""Codes floating-point numbers in fewer bytes, without loss: the format, and its coder in torch.

The 8 bits after the sign (of fp32 and bf16 the exponent, of fp16 the exponent and 3 bits more) are
near each other in neighboring elements; the rest of an element, its sign and the lower bits, is
random, or zero where a wider format holds a narrower one. Elements are coded in blocks of BLOCK:

* a header of 4 bytes: bits 0-7 the largest `top` byte of the block (`base`), 8-10 the `width` of
  codes, 12-17 two bits for each byte of the rest, the lowest first (ABSENT, SPARSE or WHOLE), and
  18-31 the bytes of the block without its header;
* `width` planes of BLOCK bits: bit i of all codes. A code is base - top, or its largest value, the
  escape, if that is as much or more. At width 0 all top bytes equal the base;
* a plane of BLOCK bits for each SPARSE byte of the rest: the elements in which it is not 0;
* the top byte of each escaped element;
* for each byte of the rest, the lowest first: those that are not 0 if it is SPARSE, all if it is
  WHOLE.

Bit e of a plane is bit e % 8 of its byte e // 8. A row has the headers of all blocks, then the
blocks, and zeros up to a multiple of ALIGNMENT. Its last block is filled with zeros. The same
elements give the same bytes on every device, by every coder.

Similar: ZipCCL (arXiv 2604.27844) codes the exponents of bf16 in 3 bits with an escape, UCCL-Zip
(arXiv 2604.17172) by entropy.
"""

import torch

from busbw_accel.methods import BLOCK

ALIGNMENT = 16
PROLOGUE = 16  # bytes of a message before its row, a multiple of ALIGNMENT; see `coder`
HEADER_BYTES = 4
MOST_WIDTH = 7
ABSENT, SPARSE, WHOLE = 0, 1, 2
PLANE_BYTES = BLOCK // 8
_WORDS = {2: torch.int16, 4: torch.int32}
# Blocks that the coder in torch takes at a time, which bounds its memory.
_AT_ONCE = 1 << 14


def row_bytes(blocks: int, content: int) -> int:
    """The bytes of a row of so many blocks, which have `content` bytes without their headers."""
    return -(-(HEADER_BYTES * blocks + content) // ALIGNMENT) * ALIGNMENT


def most_bytes(elements: int, size: int) -> int:
    """The largest row of so many elements of `size` bytes. At width 1 each but one may escape."""
    blocks = -(-elements // BLOCK)
    return row_bytes(blocks, blocks * (PLANE_BYTES + BLOCK * size))


def encode(row: torch.Tensor) -> torch.Tensor:
    """The bytes of a row (one-dimensional, contiguous, in fp32, bf16 or fp16)."""
    size = row.element_size()
    padded = torch.nn.functional.pad(row.view(_WORDS[size]), (0, -row.numel() % BLOCK))
    parts = [_encode(part, size) for part in padded.view(-1, BLOCK).split(_AT_ONCE)]
    headers = torch.cat([row.new_empty(0, dtype=torch.int32), *(part[0] for part in parts)])
    content = [part[1] for part in parts]
    length = HEADER_BYTES * headers.numel() + sum(map(len, content))
    content.append(headers.new_zeros(-length % ALIGNMENT, dtype=torch.uint8))
    return torch.cat([headers.view(torch.uint8), *content])


def decode(coded: torch.Tensor, row: torch.Tensor) -> None:
    """Fill `row` by the elements of its bytes.

    Bytes after those of the row are ignored.

    Raises:
        ValueError: these are not the bytes of a row of this length.
    """
    blocks = -(-row.numel() // BLOCK)
    if coded.numel() < HEADER_BYTES * blocks:
        raise ValueError(f"{coded.numel()} bytes of {blocks} coded blocks, less than their headers")
    headers, rest = coded[: HEADER_BYTES * blocks].view(torch.int32), coded[HEADER_BYTES * blocks :]
    size = row.element_size()
    words = row.new_empty(blocks * BLOCK, dtype=torch.int32)
    for part, out in zip(
        headers.split(_AT_ONCE), words.view(-1, BLOCK).split(_AT_ONCE), strict=True
    ):
        length = int(_field(part, 18, 14).sum())
        if length > rest.numel():
            raise ValueError(f"coded blocks of {length} bytes end after {rest.numel()}")
        out.copy_(_decode(part, rest[:length], size))
        rest = rest[length:]
    row.view(_WORDS[size]).copy_(words[: row.numel()])


def _encode(words: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The headers and the content of blocks."""
    shift = 8 * size - 9
    words = words.int()
    tops = (words >> shift) & 255
    base = tops.amax(1)
    offsets = base[:, None] - tops
    width = _widths(offsets)
    escape = (1 << width) - 1
    codes = offsets.minimum(escape[:, None])
    escaped = (offsets >= escape[:, None]) & (width > 0)[:, None]
    rests = (words & ((1 << shift) - 1)) | (((words >> (8 * size - 1)) & 1) << shift)
    planes = [(rests >> 8 * at) & 255 for at in range(size - 1)]
    modes = [_mode(plane) for plane in planes]
    sections = [_bits(codes, bit) for bit in range(MOST_WIDTH)]
    sections += [_bits(plane != 0, 0) for plane in planes]
    kept = _kept(width, modes, [escaped, *(plane != 0 for plane in planes)])
    content = torch.cat([part.to(torch.uint8) for part in [*sections, tops, *planes]], 1)[kept]
    header = base | width << 8 | kept.sum(1) << 18
    for at, mode in enumerate(modes):
        header |= mode << (12 + 2 * at)
    return header.int(), content


def _decode(headers: torch.Tensor, content: torch.Tensor, size: int) -> torch.Tensor:
    """The words of blocks, as int32."""
    base, width, lengths = (_field(headers, at, bits) for at, bits in ((0, 8), (8, 3), (18, 14)))
    modes = [_field(headers, 12 + 2 * at, 2) for at in range(size - 1)]
    starts = lengths.cumsum(0) - lengths
    # The planes of bits say which bytes follow them, so they are read first.
    fixed = torch.stack([*_of_width(width), *(mode == SPARSE for mode in modes)], 1)
    places = starts[:, None] + PLANE_BYTES * (fixed.cumsum(1) - fixed.int())
    at = places[:, :, None] + torch.arange(PLANE_BYTES, device=headers.device)
    readable = fixed[:, :, None] & (at < content.numel())
    padded = torch.nn.functional.pad(content, (0, 1))
    bits = _spread(torch.where(readable, padded[torch.where(readable, at, 0)].int(), 0))
    weights = 1 << torch.arange(MOST_WIDTH, device=headers.device)
    codes = (bits[:, :MOST_WIDTH] * weights[:, None]).sum(1)
    escaped = (codes == ((1 << width) - 1)[:, None]) & (width > 0)[:, None]
    kept = _kept(width, modes, [escaped, *bits[:, MOST_WIDTH:].bool().unbind(1)])
    if not torch.equal(kept.sum(1), lengths):
        raise ValueError("the lengths of coded blocks do not match their headers")
    values = torch.zeros(kept.shape, dtype=torch.uint8, device=headers.device)
    values = (
        values.masked_scatter_(kept, content)[:, -size * BLOCK :].int().unflatten(1, (size, -1))
    )
    tops = torch.where(escaped, values[:, 0], (base[:, None] - codes) & 255)
    rests = sum(values[:, 1 + plane] << 8 * plane for plane in range(size - 1))
    shift = 8 * size - 9
    return (rests >> shift) << (8 * size - 1) | (rests & ((1 << shift) - 1)) | tops << shift


def _widths(offsets: torch.Tensor) -> torch.Tensor:
    """The width of each block's codes: that of the fewest bytes, of equal ones the smallest."""
    costs = [
        8 * (PLANE_BYTES * width + (offsets >= (1 << width) - 1).sum(1)) + width
        for width in range(1, MOST_WIDTH + 1)
    ]
    best = torch.stack(costs).amin(0) & 7
    return torch.where(offsets.amax(1) == 0, 0, best)


def _mode(plane: torch.Tensor) -> torch.Tensor:
    """How a byte of the rests of each block is kept."""
    count = (plane != 0).sum(1)
    kept = torch.where(count + PLANE_BYTES < BLOCK, SPARSE, WHOLE)
    return torch.where(count == 0, ABSENT, kept)


def _of_width(width: torch.Tensor) -> list[torch.Tensor]:
    """Whether each block has each plane of the codes."""
    return [bit < width for bit in range(MOST_WIDTH)]


def _kept(
    width: torch.Tensor, modes: list[torch.Tensor], listed: list[torch.Tensor]
) -> torch.Tensor:
    """Which bytes of [planes of bits, tops, bytes of the rests] are in the content of each block.

    `listed`: the escaped elements, then for each byte of the rest those in which it is not 0.
    """
    planes = [*_of_width(width), *(mode == SPARSE for mode in modes)]
    parts = [plane[:, None].expand(-1, PLANE_BYTES) for plane in planes]
    parts.append(listed[0])
    for mode, there in zip(modes, listed[1:], strict=True):
        parts.append(torch.where((mode == SPARSE)[:, None], there, (mode == WHOLE)[:, None]))
    return torch.cat(parts, 1)


def _bits(values: torch.Tensor, bit: int) -> torch.Tensor:
    """A plane of bits of each block's values, in bytes."""
    picked = ((values.int() >> bit) & 1).unflatten(1, (-1, 8))
    return (picked << torch.arange(8, device=values.device)).sum(2)


def _spread(planes: torch.Tensor) -> torch.Tensor:
    """The bits of bytes: [blocks, planes, bytes] -> [blocks, planes, elements]."""
    return ((planes[..., None] >> torch.arange(8, device=planes.device)) & 1).flatten(2)


def _field(headers: torch.Tensor, at: int, bits: int) -> torch.Tensor:
    return (headers >> at) & ((1 << bits) - 1)
