"""The hash of ids and the initial values of rows: the same arithmetic as in
embedding/initial.py.
"""

import triton
import triton.language as tl

from busbw.accel.embedding import index, init_values

_FIRST, _SECOND, _GAMMA = (
    tl.constexpr(word) for word in (init_values.FIRST, init_values.SECOND, init_values.GAMMA)
)
EMPTY = tl.constexpr(index.EMPTY)
# positions in settings.INITS; 2: zeros
UNIFORM, NORMAL = (tl.constexpr(number) for number in (0, 1))
TURN = tl.constexpr(6.283185307179586 * 2.0**-24)


@triton.jit
def mix(word):
    """The finalizer of SplitMix64; `word` is uint64."""
    word = (word ^ (word >> 30)) * _FIRST
    word = (word ^ (word >> 27)) * _SECOND
    return word ^ (word >> 31)


@triton.jit
def initial_values(ids, columns, key, scale, INIT: tl.constexpr):
    """A tile of initial values, [ids, columns] in fp32. `key`: see initial.key_of."""
    if INIT > NORMAL:
        return tl.zeros((ids.shape[0], columns.shape[0]), tl.float32)
    start = mix((ids ^ key).to(tl.uint64, bitcast=True))
    word = mix(start[:, None] + ((columns + 1).to(tl.uint64) * _GAMMA)[None, :])
    high = (word >> 40).to(tl.int32).to(tl.float32)
    if INIT == UNIFORM:
        return (high * 1.1920928955078125e-07 - 1.0) * scale
    low = ((word >> 16) & 0xFFFFFF).to(tl.int32).to(tl.float32)
    radius = tl.sqrt(-2.0 * tl.log((high + 1.0) * 5.9604644775390625e-08))
    return radius * tl.cos(low * TURN) * scale
