"""Values that are not finite: kernels that notice them for all codecs, that restore what a codec
keeps (its residual) after a step that is skipped for them, and that set to NaN what a failed
exchange left.
"""

import torch
import triton
import triton.language as tl

TILE, PROGRAMS = 4096, 256  # few programs, since there is usually nothing to do


@triton.jit
def note_not_finite(value, wrong) -> None:
    """Set `wrong` to 1 if a value is infinite or NaN."""
    if tl.max((~(tl.abs(value.to(tl.float32)) < float("inf"))).to(tl.int32)) > 0:
        tl.store(wrong, 1)


@triton.jit(do_not_specialize=["length"])
def _restore(rest, before, wrong, length, KEPT: tl.constexpr, TILE: tl.constexpr):
    if tl.load(wrong) != 0:
        for tile in range(tl.program_id(0), tl.cdiv(length, TILE), tl.num_programs(0)):
            at = tile * TILE + tl.arange(0, TILE)
            inside = at < length
            value = tl.zeros((TILE,), tl.float32)
            if KEPT:
                value = tl.load(before + at, mask=inside, other=0.0)
            tl.store(rest + at, value, mask=inside)


@triton.jit(do_not_specialize=["length"])
def _spoil(part, failed, length, TILE: tl.constexpr):
    if tl.load(failed) != 0:
        for tile in range(tl.program_id(0), tl.cdiv(length, TILE), tl.num_programs(0)):
            at = tile * TILE + tl.arange(0, TILE)
            tl.store(
                part + at, tl.full((TILE,), float("nan"), part.dtype.element_ty), mask=at < length
            )


def flag(device: torch.device) -> torch.Tensor:
    """What kernels set to 1 if a value is not finite: 0 (int32, on the device)."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def spoil(part: torch.Tensor, failed: torch.Tensor) -> None:
    """Set `part` to NaN if `failed` (on the device) is not 0."""
    _spoil[(min(PROGRAMS, triton.cdiv(part.numel(), TILE)),)](part, failed, part.numel(), TILE=TILE)


def restore(rest: torch.Tensor, before: torch.Tensor | None, wrong: torch.Tensor) -> None:
    """Reset `rest` to `before` (None: zeros) if `wrong` (on the device) is not 0."""
    has_state = before is not None
    grid = min(PROGRAMS, triton.cdiv(rest.numel(), TILE))
    _restore[(grid,)](
        rest, before if has_state else rest, wrong, rest.numel(), KEPT=has_state, TILE=TILE
    )
