"""Steers NCCL through the tuner plugin of busbw-native, which NCCL has loaded into this process."""

import ctypes
from collections.abc import Iterator

from busbw.core.errors import NoMeasurement
from busbw.core.native import INSTALL
from busbw.core.pattern import ALGORITHMS, PROTOCOLS
from busbw.core.tuning import TUNED, Choice
from busbw.host import net_plugin

US = 1e-6
NOTHING = -1  # in place of a function or an algorithm
ENTRIES = len(ALGORITHMS) * len(PROTOCOLS)


class NcclTuner:
    """Steers and asks the plugin.

    Its library is the copy that NCCL uses, because the dynamic loader opens a path once.
    NoMeasurement if it is not on this host.
    """

    def __init__(self) -> None:
        path = net_plugin.find()
        try:
            library = ctypes.CDLL(str(path))
            self._steer = library.busbw_tuner_steer
            self._costs = library.busbw_tuner_costs
            self._nodes = library.busbw_tuner_nodes
        except (OSError, AttributeError) as error:
            hint = INSTALL.replace("install", "install --upgrade")
            raise NoMeasurement(f"{path} cannot steer NCCL: {error}", hint) from error
        self._steer.argtypes = (ctypes.c_int, ctypes.c_size_t, *(ctypes.c_int,) * 3)
        self._steer.restype = None
        self._costs.argtypes = (ctypes.POINTER(ctypes.c_float), ctypes.c_size_t)
        self._costs.restype = ctypes.c_size_t
        self._nodes.argtypes = ()
        self._nodes.restype = ctypes.c_size_t
        # Communicators that are created from now on have a tuner.
        self._steer(NOTHING, 0, NOTHING, NOTHING, 0)

    def steer(self, collective: str, size_bytes: int, choice: Choice | None) -> None:
        """See Tuner."""
        algorithm, protocol = choice.numbers if choice else (NOTHING, NOTHING)
        channels = choice.channels if choice else 0
        self._steer(TUNED.index(collective), size_bytes, algorithm, protocol, channels)

    def costs(self) -> dict[Choice, float]:
        """See Tuner."""
        table = (ctypes.c_float * ENTRIES)()
        count = self._costs(table, ENTRIES)
        costs = zip(_all_choices(), table[:count], strict=False)
        return {choice: cost * US for choice, cost in costs if cost >= 0}

    def nodes(self) -> int:
        """See Tuner."""
        return int(self._nodes())


def _all_choices() -> Iterator[Choice]:
    """All choices in the order of the plugin's table."""
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            yield Choice(algorithm, protocol)
