"""Whether a libnccl reads the variables of its log again, on a machine without a GPU.

    BUSBW_PLUGIN=LIBRARY python log_again.py LIBNCCL

It writes NCCL's line about a kernel over symmetric memory three times, with NCCL's own logger, as
there are no GPUs to run one: before, in and after `with_choices`. Prints, as JSON, the version of
the profiler interface, how many of the lines are in the log each time, and whether it still has what
it had before.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

from abi import LOGGER
from libnccl import COMMUNICATOR_BYTES, UniqueId, addresses, inside

from busbw.core.env import temporarily
from busbw.core.ran import NcclKernel
from busbw.engines.nccl_log import listening
from busbw.engines.nccl_profiler import NcclProfiler
from busbw.measure.formats import nccl_kernels

NCCL_LOGGER = "_Z12ncclDebugLog17ncclDebugLogLevelmPKciS1_z"  # ncclDebugLog, as g++ spells it
INFO, TUNING = 3, 64  # ncclDebugLogLevel, ncclDebugLogSubSys
LINE = b"AllReduce [Symmetric]: 256 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512"
NAMED = NcclKernel("Symmetric", "", 1, "AllReduce_AGxLL_R")


def main(path: Path) -> None:
    """See the docstring of the module."""
    profiler = NcclProfiler()
    profiler.prepare()
    plugin = {"NCCL_PROFILER_PLUGIN": os.environ["BUSBW_PLUGIN"]}
    with temporarily(plugin), listening(stay=True) as log:
        library = ctypes.CDLL(str(path))
        assert library.ncclGetUniqueId(ctypes.byref(UniqueId())) == 0
        start = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(
            inside(path, library)["ncclProfilerPluginInit"]
        )
        communicator = ctypes.create_string_buffer(COMMUNICATOR_BYTES)
        assert start(ctypes.addressof(communicator)) == 0
        assert profiler.start() and profiler.reads_log_variables
        profiler.stop()
    logger = LOGGER(addresses(path, library)[NCCL_LOGGER])

    def named() -> int:
        logger(INFO, TUNING, b"here", 1, b"%s", LINE)
        return nccl_kernels.kernels(log.text).count(NAMED)

    counts = [named()]
    with log.with_choices(profiler.read_log_variables):
        counts.append(named())
    counts.append(named())
    kept = "Successfully loaded external profiler plugin" in log.text
    log.close()
    print(json.dumps([profiler.interface, counts, kept]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
