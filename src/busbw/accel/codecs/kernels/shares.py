"""A rank's share of an average: division by how many ranks there are, without dividing where nobody could tell."""

import triton
import triton.language as tl


def exact(size: int) -> bool:
    """Whether multiplying by 1/size rounds as dividing does: it is a power of two."""
    return size & (size - 1) == 0


@triton.jit
def divided(value, size, EXACT: tl.constexpr) -> tl.tensor:
    """As division rounds; dividing takes some twenty instructions, and a branch for each element."""
    return value * (1.0 / size) if EXACT else tl.div_rn(value, size)


@triton.jit
def share(places, inside, size, EXACT: tl.constexpr) -> tl.tensor:
    """Of what lies there, in fp32."""
    return divided(tl.load(places, mask=inside, other=0.0).to(tl.float32), size, EXACT)
