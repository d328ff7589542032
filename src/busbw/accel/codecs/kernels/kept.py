"""What is kept between steps, where a step comes to nothing."""

import torch
import triton
import triton.language as tl

TILE = 4096


@triton.jit(do_not_specialize=["length"])
def _restore(rest, before, wrong, length, KEPT: tl.constexpr, TILE: tl.constexpr):
    if tl.load(wrong) != 0:
        at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
        inside = at < length
        value = tl.zeros((TILE,), tl.float32)
        if KEPT:
            value = tl.load(before + at, mask=inside, other=0.0)
        tl.store(rest + at, value, mask=inside)


def restore(rest: torch.Tensor, before: torch.Tensor | None, wrong: torch.Tensor) -> None:
    """`rest` becomes what was there before (None: nothing) if `wrong`, on the device, is not 0."""
    kept = before is not None
    _restore[(triton.cdiv(rest.numel(), TILE),)](rest, before if kept else rest, wrong, rest.numel(), KEPT=kept, TILE=TILE)
