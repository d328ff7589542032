"""The check on the GPU finds a single wrong byte at any offset and reports the expected value."""

import pytest

from busbw.core.collectives import collective
from busbw.core.dtypes import DTYPES
from busbw.core.layouts import Layout
from busbw.core.redops import redop
from busbw.engines.base import CollectiveCall, Probe, Region
from busbw.engines.cuda_memory import CudaMemory, placed
from busbw.engines.cuda_runtime import CudaGpu, Stream
from busbw.engines.host_memory import expected

pytestmark = pytest.mark.gpu
COUNT = 100_003


@pytest.fixture
def gpu(gpus):
    return CudaGpu(0)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("kind", ["sent", "untouched"])
@pytest.mark.parametrize("offset", [0, 1, 77_777, COUNT - 1])
def test_one_wrong_element_is_found(gpu, dtype, kind, offset):
    size = dtype.itemsize
    stream = Stream(gpu)
    buffer = gpu.allocate((COUNT + 1) * size)
    memory = CudaMemory(gpu, stream, placed(0, buffer, buffer))
    call = CollectiveCall(
        collective("all_reduce"),
        dtype,
        redop("sum"),
        Layout(COUNT, 3),
        COUNT,
        COUNT,
        in_place=False,
        shift_bytes=size,
    )
    probe, region = Probe(9, dtype, redop("sum"), 3), Region(0, COUNT, kind, 2, 1 << 33)
    memory.write(call, "recv", [region], probe)
    assert memory.check(call, "recv", [region], probe).count == 0
    at = buffer + (1 + offset) * size
    before = stream.read(at, size)
    stream.set_bytes(at, before[0] ^ 0x41, 1)
    mismatch = memory.check(call, "recv", [region], probe)
    assert (mismatch.count, mismatch.offset) == (1, offset)
    assert (
        mismatch.expected
        == before
        == expected(kind, probe, region.rank, region.first + offset, 1).tobytes()
    )
    assert mismatch.got == bytes([before[0] ^ 0x41]) + before[1:]
    memory.close()
    gpu.free(buffer)
    stream.close()
