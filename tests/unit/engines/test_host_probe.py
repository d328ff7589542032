"""The numpy form of the verification data gives the same bits as its definition in core."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw.core.dtypes import DTYPES
from busbw.core.probe import Probe
from busbw.core.redops import REDOPS
from busbw.engines.host_probe import reduced, sent


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 33), st.integers(0, 2**31), st.integers(0, 2**35), st.data())
def test_same_bits_as_the_definition(ranks, seed, first, data):
    rank = data.draw(st.integers(0, ranks - 1))
    for dtype in DTYPES:
        for op in (None, *REDOPS):
            probe = Probe(seed, dtype, op, ranks)
            assert sent(probe, rank, first, 9).tolist() == [probe.sent(rank, first + i) for i in range(9)], (dtype.name, op)
            if op is not None:
                assert reduced(probe, first, 9).tolist() == [probe.reduced(first + i) for i in range(9)], (dtype.name, op)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_a_chunk_does_not_depend_on_where_it_starts(dtype):
    probe = Probe(5, dtype, REDOPS[0], 3)
    whole = sent(probe, 1, 0, 5000)
    assert np.array_equal(whole[1234:1300], sent(probe, 1, 1234, 66))
