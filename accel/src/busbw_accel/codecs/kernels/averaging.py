"""A rank's share of an average: the value divided by the number of ranks, or multiplied by its
inverse if that is exact.
"""

import triton
import triton.language as tl


def exact(size: int) -> bool:
    """Whether multiplying by 1/size gives the same bits as dividing: `size` is a power of two."""
    return size & (size - 1) == 0


@triton.jit
def divided(value, size, EXACT: tl.constexpr) -> tl.tensor:
    """`value` / `size`, correctly rounded.

    A division takes about twenty instructions and a branch per element.
    """
    return value * (1.0 / size) if EXACT else tl.div_rn(value, size)


@triton.jit
def share(pointers, inside, size, EXACT: tl.constexpr) -> tl.tensor:
    """The share of the values at `pointers`, in fp32."""
    return divided(tl.load(pointers, mask=inside, other=0.0).to(tl.float32), size, EXACT)
