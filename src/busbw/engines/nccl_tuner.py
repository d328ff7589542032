"""Steers NCCL through the tuner plugin of busbw-native, which NCCL has loaded into this process."""

import ctypes
from itertools import product, starmap

from busbw.core.pattern import ALGORITHMS, PROTOCOLS
from busbw.core.tuning import TUNED, TuningChoice
from busbw.engines.native_library import library
from busbw.host import net_plugin

US = 1e-6
NOTHING = -1  # in place of a function or an algorithm
ENTRIES = len(ALGORITHMS) * len(PROTOCOLS)
FUNCTIONS = {
    "busbw_tuner_steer": (None, (ctypes.c_int, ctypes.c_size_t, *(ctypes.c_int,) * 3)),
    "busbw_tuner_costs": (ctypes.c_size_t, (ctypes.POINTER(ctypes.c_float), ctypes.c_size_t)),
    "busbw_tuner_nodes": (ctypes.c_size_t, ()),
}


class NcclTuner:
    """Steers and asks the plugin.

    Its library is the copy that NCCL uses, because the dynamic loader opens a path once.
    NoMeasurement if it is not on this host, or does not fit.
    """

    def __init__(self) -> None:
        net_plugin.find()  # refuses a path that NCCL cannot use
        self._library = library(FUNCTIONS)
        # Communicators that are created from now on have a tuner.
        self._library.busbw_tuner_steer(NOTHING, 0, NOTHING, NOTHING, 0)

    def steer(self, collective: str, size_bytes: int, choice: TuningChoice | None) -> None:
        algorithm, protocol = choice.numbers if choice else (NOTHING, NOTHING)
        channels = choice.channels if choice else 0
        self._library.busbw_tuner_steer(
            TUNED.index(collective), size_bytes, algorithm, protocol, channels
        )

    def costs(self) -> dict[TuningChoice, float]:
        table = (ctypes.c_float * ENTRIES)()
        count = self._library.busbw_tuner_costs(table, ENTRIES)
        # in the order of the plugin's table
        choices = starmap(TuningChoice, product(ALGORITHMS, PROTOCOLS))
        costs = zip(choices, table[:count], strict=False)
        return {choice: cost * US for choice, cost in costs if cost >= 0}

    def nodes(self) -> int:
        return int(self._library.busbw_tuner_nodes())
