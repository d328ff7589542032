"""A tuner table called as NCCL calls it.

As a program, it is a process that steers, which never ends: see `main`.
"""

import ctypes
import os
import sys
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

from abi import LOGGER
from libnccl import COMMUNICATOR_BYTES, UniqueId, inside

from busbw.core.tuning import TuningChoice
from busbw.engines.nccl_tuner import NcclTuner

RANKS, HOSTS = 2, 2
ALGORITHMS, PROTOCOLS = 7, 3
IMPOSSIBLE = 4  # the entry that NCCL cannot run
ALL_REDUCE, REDUCE_SCATTER, BROADCAST = 4, 3, 0
INIT = {
    4: (c_size_t, c_size_t, LOGGER, POINTER(c_void_p)),
    **dict.fromkeys(
        (5, 6, 7), (POINTER(c_void_p), c_uint64, c_size_t, c_size_t, LOGGER, c_void_p, c_void_p)
    ),
}
CHUNK = (c_void_p, c_int, c_size_t, c_int, c_int, c_int, POINTER(c_size_t))
WITH_CHUNKS = 6
NCCLS_CHUNK = 1 << 17
INFO = (c_void_p, c_int, c_size_t, c_int, c_void_p, c_int, c_int, c_int, POINTER(c_int))


class Called:
    """The table at an address, with a new communicator."""

    def __init__(self, address: int, version: int) -> None:
        table = (c_void_p * 5).from_address(address)
        self._context, self._logger = (
            c_void_p(),
            LOGGER(lambda level, flags, file, line, form, text: print("log", level, text.decode())),
        )
        context = byref(self._context)
        old, new = (
            (RANKS, HOSTS, self._logger, context),
            (context, 0, RANKS, HOSTS, self._logger, None, None),
        )
        assert CFUNCTYPE(c_int, *INIT[version])(table[1])(*(old if version < 5 else new)) == 0
        # NCCL's own tables, which pass calls on, have these from init on
        self._info, self._end = table[2:4]
        self._chunk = table[4] if version >= WITH_CHUNKS else None

    def ask(self, function: int, size: int) -> tuple[int | None, int]:
        """The entry of the costs 1, 2, 3... that is 0 afterwards, and the channels."""
        costs, channels = (
            (c_float * (ALGORITHMS * PROTOCOLS))(*range(1, ALGORITHMS * PROTOCOLS + 1)),
            c_int(),
        )
        costs[IMPOSSIBLE] = -1
        assert (
            CFUNCTYPE(c_int, *INFO)(self._info)(
                self._context, function, size, 1, costs, ALGORITHMS, PROTOCOLS, 0, byref(channels)
            )
            == 0
        )
        return costs[:].index(0) if 0 in costs[:] else None, channels.value

    def chunk(self, size: int, algorithm: int, protocol: int) -> int | None:
        """The chunk size of an all-reduce; None of a version that does not ask for it."""
        if self._chunk is None:
            return None
        chunk = c_size_t(NCCLS_CHUNK)
        words = (self._context, ALL_REDUCE, size, algorithm, protocol, 8, byref(chunk))
        assert CFUNCTYPE(c_int, *CHUNK)(self._chunk)(*words) == 0
        return chunk.value

    def end(self) -> None:
        """The communicator ends."""
        assert CFUNCTYPE(c_int, c_void_p)(self._end)(self._context) == 0


def taken_by(path: Path) -> int:
    """Address of the tuner that this libnccl gives to a communicator."""
    library = ctypes.CDLL(str(path))
    # the start of every job: reads the environment
    assert library.ncclGetUniqueId(byref(UniqueId())) == 0
    communicator = ctypes.create_string_buffer(COMMUNICATOR_BYTES)
    load = inside(path, library)["ncclTunerPluginLoad"]
    assert CFUNCTYPE(c_int, c_void_p)(load)(ctypes.addressof(communicator)) == 0
    words = memoryview(communicator.raw).cast("Q")
    address = [word for word in words if word][-1]  # the pointer to the tuner follows a flag
    assert c_char_p.from_address(address).value == b"busbw"
    return int(address)


def main() -> None:
    """Arguments: the table's version, and the libnccl that finds the table, else it is the
    plugin's.

    Steers unless there is a table file.

    The first line says whether the plugin exports the table that libnccl found. The others are the
    plugin's log and what it chooses.
    """
    version, libnccl = int(sys.argv[1]), sys.argv[2:]
    exported = ctypes.addressof(
        c_void_p.in_dll(ctypes.CDLL(os.environ["BUSBW_PLUGIN"]), f"ncclTunerPlugin_v{version}")
    )
    address = taken_by(Path(libnccl[0])) if libnccl else exported
    print("exported" if address == exported else "another")
    steering = os.environ.get("BUSBW_TUNER_TABLE") is None
    tuner = NcclTuner() if steering else None
    called = Called(address, version)
    print(
        [called.ask(ALL_REDUCE, size) for size in (1023, 1024, 4096, 4097)],
        called.ask(BROADCAST, 1024),
    )
    print("chunks", called.chunk(1024, 1, 2), called.chunk(1024, 0, 2), called.chunk(4097, 1, 2))
    if tuner:
        tuner.steer("all_reduce", 64, TuningChoice("Tree", "Simple", 4))
        print(
            tuner.nodes(),
            tuner.costs(),
            called.ask(ALL_REDUCE, 64),
            called.ask(ALL_REDUCE, 65),
            called.ask(REDUCE_SCATTER, 64),
        )
        costs = tuner.costs()
        print(
            tuner.nodes(),
            len(costs),
            TuningChoice("Ring", "LL128") in costs,
            round(costs[TuningChoice("Tree", "Simple")] * 1e6),
        )
        tuner.steer("all_reduce", 64, None)
        print(called.ask(ALL_REDUCE, 64), len(tuner.costs()))
    called.end()


if __name__ == "__main__":
    main()
