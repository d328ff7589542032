"""probe.cu, built as plain C++, must give the bits of host_probe.py for every type, operator,
rank and index, and detect all wrong ones.
"""

import ctypes
import shutil
import subprocess

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from busbw.core.dtypes import BY_NAME, DTYPES
from busbw.core.redops import REDOPS
from busbw.core.redops import redop as redop_named
from busbw.engines.base import Probe
from busbw.engines.cuda_kernels import KINDS, SOURCE, Found, RegionArgument, elements
from busbw.engines.host_memory import expected

COMPILER = shutil.which("g++")
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no g++: make test-tools"),
    pytest.mark.xdist_group("probe.cu"),  # which is built once
]

EXAMPLES = max(100, settings().max_examples)  # of many types, operators and ranks
OPS = (None, *REDOPS)
COMBINATIONS = [(dtype, op) for dtype in DTYPES for op in OPS]

HARNESS = """
#include "{source}"
template <class E> void visit_all(const Region* r, u32 kind, int write, u64 threads, Found* out) {{
    for (u64 t = 0; t < threads; t++) {{
        const Found found = visit<E>(*r, kind, write != 0, t, threads);
        out->wrong += found.wrong;
        if (found.farthest > out->farthest) out->farthest = found.farthest;
    }}
}}
extern "C" void run(int which, const Region* r, u32 kind, int write, u64 threads, Found* out) {{
    switch (which) {{
        {cases}
    }}
}}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    cases = "\n".join(
        f"case {number}: visit_all<{elements(*pair)}>(r, kind, write, threads, out); break;"
        for number, pair in enumerate(COMBINATIONS)
    )
    (folder / "harness.cc").write_text(HARNESS.format(source=SOURCE, cases=cases))
    command = [
        COMPILER,
        "-std=c++17",
        "-O0",
        "-fno-strict-aliasing",
        "-shared",
        "-fPIC",
        "-o",
        "probe.so",
        "harness.cc",
    ]
    subprocess.run(command, cwd=folder, check=True, timeout=110)
    loaded = ctypes.CDLL(str(folder / "probe.so"))
    loaded.run.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint64,
        ctypes.c_void_p,
    ]
    return loaded


class Buffer:
    """Aligned memory with guard bytes on both sides of the region."""

    GUARD = 32

    def __init__(self, size: int, shift: int) -> None:
        self.memory = ctypes.create_string_buffer(
            b"\xee" * (size + 2 * self.GUARD + 16 + shift), size + 2 * self.GUARD + 16 + shift
        )
        base = ctypes.addressof(self.memory)
        self.start = -base % 16 + self.GUARD + shift
        self.address, self.size = base + self.start, size

    @property
    def data(self) -> bytes:
        return self.memory.raw[self.start : self.start + self.size]

    @property
    def around(self) -> set[int]:
        raw = self.memory.raw
        return set(raw[: self.start] + raw[self.start + self.size :])


def run(library, probe, kind, rank, first, length, address, *, write, threads=1):
    limit = probe.average_limit if probe.op and probe.op.name == "avg" else 0
    region = RegionArgument(
        address, first, length, probe.seed, probe.ranks, rank, limit, probe.tolerance
    )
    result = Found()
    combination = COMBINATIONS.index((probe.dtype, probe.op))
    library.run(
        combination,
        ctypes.addressof(region),
        KINDS[kind],
        int(write),
        threads,
        ctypes.addressof(result),
    )
    return result


def bits(data: bytes, itemsize: int) -> list[int]:
    return [int.from_bytes(data[i : i + itemsize], "little") for i in range(0, len(data), itemsize)]


def expected_bits(probe, kind, rank, first, length):
    return expected(kind, probe, rank, first, length).tolist()


@st.composite
def probes(draw):
    dtype, op = draw(st.sampled_from(COMBINATIONS))
    ranks = draw(st.one_of(st.integers(1, 16), st.integers(1, 5000)))
    return Probe(draw(st.integers(0, 2**64 - 1)), dtype, op, ranks), draw(st.integers(0, ranks - 1))


INDEXES = st.one_of(st.integers(0, 100), st.integers(2**32 - 5, 2**32 + 5), st.integers(0, 2**50))
AVERAGE_OVER_MORE_RANKS_THAN_THE_TYPE_CAN_DIVIDE_BY = (
    Probe(5, BY_NAME["f8e4m3"], redop_named("avg"), 4001),
    17,
)
AVERAGE_OF_ONE_RANK = (Probe(5, BY_NAME["uint64"], redop_named("avg"), 1), 0)


@settings(max_examples=EXAMPLES)
@given(
    probes(),
    st.sampled_from(["sent", "reduced", "untouched"]),
    INDEXES,
    st.integers(1, 40),
    st.integers(0, 15),
    st.integers(1, 5),
)
@example(AVERAGE_OVER_MORE_RANKS_THAN_THE_TYPE_CAN_DIVIDE_BY, "reduced", 0, 40, 3, 1)
@example(AVERAGE_OF_ONE_RANK, "sent", 2**32, 40, 3, 2)
def test_fill_writes_the_same_bits_as_numpy(library, case, kind, first, length, shift, threads):
    probe, rank = case
    assume(kind != "reduced" or probe.op is not None)
    size = probe.dtype.itemsize
    buffer = Buffer(length * size, shift // size * size)
    run(library, probe, kind, rank, first, length, buffer.address, write=True, threads=threads)
    assert bits(buffer.data, size) == expected_bits(probe, kind, rank, first, length)
    assert buffer.around == {0xEE}, "wrote outside its region"


@settings(max_examples=EXAMPLES)
@given(
    probes(),
    st.sampled_from(["sent", "reduced", "untouched"]),
    INDEXES,
    st.integers(1, 60),
    st.integers(0, 15),
    st.data(),
)
def test_check_counts_wrong_elements_and_names_the_first(
    library, case, kind, first, length, shift, data
):
    probe, rank = case
    assume(kind != "reduced" or probe.op is not None)
    size = probe.dtype.itemsize
    tolerance = probe.tolerance if kind == "reduced" else 0
    buffer = Buffer(length * size, shift // size * size)
    values = expected_bits(probe, kind, rank, first, length)
    flips = data.draw(
        st.dictionaries(
            st.integers(0, length - 1), st.integers(1, 2**probe.dtype.bits - 1), max_size=5
        )
    )
    corrupted = [value ^ flips.get(offset, 0) for offset, value in enumerate(values)]
    ctypes.memmove(
        buffer.address,
        b"".join(value.to_bytes(size, "little") for value in corrupted),
        length * size,
    )
    wrong = [
        offset
        for offset, (a, b) in enumerate(zip(corrupted, values, strict=True))
        if abs(a - b) > tolerance
    ]
    result = run(library, probe, kind, rank, first, length, buffer.address, write=False, threads=3)
    assert result.wrong == len(wrong)
    if wrong:
        assert result.first == wrong[0]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 1000])
def test_every_type_and_operator(library, ranks):
    for dtype, op in COMBINATIONS:
        probe, size = Probe(77, dtype, op, ranks), dtype.itemsize
        for kind, rank in (("sent", 0), ("sent", ranks - 1), *([("reduced", 0)] if op else [])):
            region = (kind, rank, 2**33 + 1, 64)
            buffer = Buffer(64 * size, 0)
            run(library, probe, *region, buffer.address, write=True)
            assert bits(buffer.data, size) == expected_bits(probe, *region), (probe, kind)
            checked = run(library, probe, *region, buffer.address, write=False)
            assert checked.wrong == 0, (probe, kind)
