"""The verification data must be exact for every order of combining the ranks, and for every
type, operator and number of ranks.
"""

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw.core.dtypes import DTYPES, DType, decode, encode, round_to_bits
from busbw.core.redops import REDOPS
from busbw.engines.base import Probe
from busbw.engines.host_probe import Chunk

FLOATS = [d for d in DTYPES if d.is_float]


def sent(probe: Probe, rank: int, index: int) -> int:
    return int(Chunk(probe, index, 1).sent(rank)[0])


def reduced(probe: Probe, index: int) -> int:
    return int(Chunk(probe, index, 1).reduced()[0])


def combine(name: str, a: int, b: int, dtype: DType) -> int:
    """One step of a reduction as hardware of this type does it: rounded to the type, wrapping
    for integers.
    """
    mask = (1 << dtype.bits) - 1
    if dtype.is_float:
        x, y = decode(a, dtype), decode(b, dtype)
        assert isinstance(x, Fraction) and isinstance(y, Fraction)
        value = {"sum": x + y, "prod": x * y, "min": min(x, y), "max": max(x, y)}[name]
        assert value == 0 or abs(value) == abs(decode(round_to_bits(value, dtype), dtype)), (
            "a partial result was not exact"
        )
        return round_to_bits(value, dtype)
    sign = 1 << (dtype.bits - 1) if dtype.kind == "int" else 0
    return {
        "sum": a + b & mask,
        "prod": a * b & mask,
        "min": min(a ^ sign, b ^ sign) ^ sign,
        "max": max(a ^ sign, b ^ sign) ^ sign,
    }[name]


@pytest.mark.parametrize("op", REDOPS, ids=lambda o: o.name)
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.one_of(st.integers(1, 6), st.integers(1, 40)),
    st.integers(0, 2**40),
    st.integers(0, 2**33),
    st.randoms(),
)
def test_any_order_gives_the_expected_bits(op, dtype, ranks, seed, index, rng: random.Random):
    probe = Probe(seed, dtype, op, ranks)
    values = [sent(probe, rank, index) for rank in range(ranks)]
    name = "sum" if op.name in ("avg", "mulsum") else op.name
    if op.name == "mulsum":
        values = [v if r % 2 == 0 else combine("sum", v, v, dtype) for r, v in enumerate(values)]
    while len(values) > 1:
        a, b = values.pop(rng.randrange(len(values))), values.pop(rng.randrange(len(values)))
        values.append(combine(name, a, b, dtype))
    value = values[0]
    if op.name == "avg":
        value = (
            round_to_bits(decode(value, dtype) / ranks, dtype) if dtype.is_float else value // ranks
        )
    assert abs(value - reduced(probe, index)) <= probe.tolerance


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(FLOATS), st.integers(2, 40), st.integers(0, 1000))
def test_the_average_is_exact_if_each_input_is_divided_first(dtype, ranks, index):
    probe = Probe(7, dtype, next(op for op in REDOPS if op.name == "avg"), ranks)
    if probe.tolerance:
        return
    inverse = decode(round_to_bits(Fraction(1, ranks), dtype), dtype)
    parts = [
        round_to_bits(decode(sent(probe, r, index), dtype) * inverse, dtype) for r in range(ranks)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = combine("sum", total, part, dtype)
    assert total == reduced(probe, index)


@pytest.mark.parametrize("op", REDOPS, ids=lambda o: o.name)
def test_results_differ_from_inputs_and_between_elements(op):
    """A collective that did nothing, or shifted elements by one index, must be detected."""
    for dtype in DTYPES:
        probe = Probe(11, dtype, op, 2)
        results = Chunk(probe, 0, 200).reduced().tolist()
        assert len(set(results)) > 5, dtype
        if op.name in ("sum", "prod", "mulsum", "avg"):
            inputs = Chunk(probe, 0, 200).sent(0).tolist()
            differing = sum(value != result for value, result in zip(inputs, results, strict=True))
            assert differing > 40, dtype


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_moved_floats_are_finite_and_depend_on_rank_and_index(dtype):
    probe = Probe(3, dtype, None, 4)
    values = [Chunk(probe, 0, 500).sent(rank).tolist() for rank in range(4)]
    assert all(isinstance(decode(v, dtype), Fraction) for row in values for v in row)
    assert values[0] != values[1] and values[0][1:] != values[0][:-1]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_encode_decode_patterns_of_all_exponents(dtype):
    bits = (
        range(0, 1 << dtype.bits, 5 if dtype.bits == 16 else 1)
        if dtype.bits <= 16
        else [random.Random(1).getrandbits(dtype.bits) for _ in range(3000)]
    )
    for pattern in bits:
        value = decode(pattern, dtype)
        if isinstance(value, Fraction) and pattern not in (0, 1 << (dtype.bits - 1)):
            assert round_to_bits(value, dtype) == pattern
            power = value.denominator.bit_length() - 1
            assert encode(value.numerator, -power, dtype) == pattern


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_data_does_not_depend_on_how_it_is_split_into_chunks(dtype):
    probe = Probe(5, dtype, REDOPS[0], 3)
    whole_chunk = Chunk(probe, 0, 5000).sent(1)
    assert np.array_equal(whole_chunk[1234:1300], Chunk(probe, 1234, 66).sent(1))
