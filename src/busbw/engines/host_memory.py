"""Verification's access to buffers in host memory.

It writes and compares bit patterns through numpy views, a chunk at a time.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from busbw.engines.base import SENTINEL_BYTE, CollectiveCall, Probe, Region, WrongData
from busbw.engines.host_probe import Bits, Chunk, bits_type

CHUNK = 1 << 15  # elements; the temporaries of one chunk stay in the second-level cache
# Regions of up to so many elements are computed as they are; longer ones come in cached, aligned
# chunks.
SMALL_ELEMENTS = 1 << 12
CACHE_BYTES = 256 << 20  # a sweep asks for the same elements again at every size

View = Callable[[CollectiveCall, str], "np.ndarray[tuple[int], np.dtype[np.uint8]]"]


class HostMemory:
    """Buffers of one rank in host memory; `view(call, buffer)` gives the bytes of a call's data."""

    def __init__(self, view: View) -> None:
        self._view = view

    def write(
        self, call: CollectiveCall, buffer: str, regions: Sequence[Region], probe: Probe
    ) -> None:
        bits = self._bits(call, buffer)
        for region in regions:
            for start, length, values in _chunks(region, probe):
                bits[start : start + length] = values

    def check(
        self, call: CollectiveCall, buffer: str, regions: Sequence[Region], probe: Probe
    ) -> WrongData:
        """Count elements that differ from their region's values, and keep the first."""
        bits = self._bits(call, buffer)
        count, first = 0, WrongData(0)
        for region in regions:
            tolerance = probe.tolerance if region.kind == "reduced" else 0
            for start, length, values in _chunks(region, probe):
                got = bits[start : start + length]
                wrong = _differs(got, values, tolerance)
                if wrong.any():
                    index = int(np.argmax(wrong))
                    if not count:
                        expected_bits, got_bits = values[index].tobytes(), got[index].tobytes()
                        first = WrongData(0, start + index, expected_bits, got_bits)
                    count += int(np.count_nonzero(wrong))
        return WrongData(count, first.offset, first.expected, first.got)

    def _bits(self, call: CollectiveCall, buffer: str) -> Bits:
        return self._view(call, buffer).view(bits_type(call.dtype))


def _chunks(region: Region, probe: Probe) -> Iterator[tuple[int, int, Bits]]:
    """(offset in the buffer, length, bit patterns) of the region's chunks."""
    done = 0
    while done < region.length:
        index = region.first + done
        within = index % CHUNK if region.length > SMALL_ELEMENTS else 0
        length = min(CHUNK - within, region.length - done)
        if region.length > SMALL_ELEMENTS and region.kind != "untouched":
            chunk = _cached_chunk(region.kind, probe, region.rank, index - within)
            values = chunk[within : within + length]
        else:
            values = expected(region.kind, probe, region.rank, index, length)
        yield region.offset + done, length, values
        done += length


def expected(kind: str, probe: Probe, rank: int, first: int, length: int) -> Bits:
    """Bit patterns of `length` elements of a region of this kind (see Region).

    `first` is the index in `rank`'s send buffer.
    """
    if kind == "untouched":
        sentinels = np.full(length * probe.dtype.itemsize, SENTINEL_BYTE, np.uint8)
        return sentinels.view(bits_type(probe.dtype))
    chunk = Chunk(probe, first, length)
    return chunk.sent(rank) if kind == "sent" else chunk.reduced()


_cache: OrderedDict[tuple[str, Probe, int, int], Bits] = OrderedDict()


def _cached_chunk(kind: str, probe: Probe, rank: int, first: int) -> Bits:
    key = (kind, probe, rank, first)
    values = _cache.get(key)
    if values is None:
        values = _cache[key] = expected(kind, probe, rank, first, CHUNK)
        if len(_cache) * values.nbytes > CACHE_BYTES:
            _cache.popitem(last=False)
    return values


def _differs(
    got: Bits, values: Bits, tolerance: int
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    if not tolerance:
        return np.asarray(got != values)
    distance = np.where(got > values, got - values, values - got)
    return np.asarray(distance > tolerance)
