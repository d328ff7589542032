"""Asks NCCL what it runs, through the profiler plugin of busbw-native, which NCCL has loaded into
this process.
"""

import ctypes
import os
from collections.abc import Callable

from busbw.core.pattern import nccl_algorithm, nccl_protocol
from busbw.core.ran import COPY_ENGINE, SENDS, SYMMETRIC, NcclKernel
from busbw.engines.native_library import library
from busbw.host import net_plugin

TEXT_BYTES = 4096
FUNCTIONS = {
    "busbw_ran_ask": (None, ()),
    "busbw_ran_start": (ctypes.c_uint64, ()),
    "busbw_ran_stop": (ctypes.c_size_t, (ctypes.c_char_p, ctypes.c_size_t)),
    "busbw_log_touch": (None, ()),
}
NCCL = "libnccl.so.2"
# Kinds of lines; other lines are of collectives that run one of NCCL's algorithms.
SPECIAL = {"symmetric": SYMMETRIC, "copy_engine": COPY_ENGINE, "p2p": SENDS}


class NcclProfiler:
    """See base.Profiler.

    Its library is the copy that NCCL uses, because the dynamic loader opens a path once.
    NoMeasurement if busbw-native is not on this host, or does not fit.
    """

    def __init__(self) -> None:
        net_plugin.find()  # refuses a path that NCCL cannot use
        self._library = library(FUNCTIONS)
        self.lost = self.interface = 0
        self._text = ctypes.create_string_buffer(TEXT_BYTES)

    def prepare(self) -> None:
        """Communicators that are created from now on can be asked."""
        self._library.busbw_ran_ask()

    def start(self) -> bool:
        self.interface = int(self._library.busbw_ran_start())
        return bool(self.interface)

    def stop(self) -> list[NcclKernel]:
        self.lost += self._library.busbw_ran_stop(self._text, TEXT_BYTES)
        return kernels(self._text.value.decode("utf-8", "replace"))

    @property
    def reads_log_variables(self) -> bool:
        return _reset_of_log() is not None

    def read_log_variables(self) -> None:
        reset = _reset_of_log()
        if reset:
            reset()
            # NCCL reads them with its next line, which must come while they are set.
            self._library.busbw_log_touch()


def _reset_of_log() -> Callable[[], object] | None:
    """The function of the loaded NCCL after which it reads the variables of its log again. It is
    exported, but no part of NCCL's API: src/debug.cc of 2.27 to 2.32. None for an NCCL without.
    """
    try:
        nccl = ctypes.CDLL(NCCL, mode=os.RTLD_NOLOAD)
        reset: Callable[[], object] = nccl.ncclResetDebugInit
    except (OSError, AttributeError):  # it may be linked into PyTorch's library
        return None
    return reset


def kernels(text: str) -> list[NcclKernel]:
    """The kernels in the lines of the plugin (native/crates/plugin/src/what_ran.rs), without
    those of an algorithm that NCCL does not name.

    Names that busbw does not know stay as NCCL writes them.
    """
    found = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 6 or not fields[4].isdecimal():
            continue
        kind, _, algorithm, protocol, channels, variant = fields
        protocol = nccl_protocol(protocol) or protocol
        algorithm = SPECIAL.get(kind) or nccl_algorithm(algorithm) or algorithm
        if kind in SPECIAL:
            protocol = ""
        if algorithm:
            found.append(NcclKernel(algorithm, protocol, int(channels), variant))
    return list(dict.fromkeys(found))
