"""Steers NCCL through the tuner plugin of busbw-native, which NCCL has loaded into this process."""

import ctypes
from collections.abc import Iterator

from busbw.core.errors import NoMeasurement
from busbw.core.native import INSTALL
from busbw.core.pattern import ALGORITHMS, PROTOCOLS
from busbw.core.tuner_table import TUNED, Choice
from busbw.host import net_plugin

US = 1e-6
NOTHING = -1  # in place of a function or an algorithm
ENTRIES = len(ALGORITHMS) * len(PROTOCOLS)


class NcclTuner:
    """The library is NCCL's copy: the dynamic loader opens a path once.

    NoMeasurement if it is not on this host.
    """

    def __init__(self) -> None:
        path = net_plugin.find()
        try:
            library = ctypes.CDLL(str(path))
            self._steer, self._costs, self._nodes = (
                library.busbw_tuner_steer,
                library.busbw_tuner_costs,
                library.busbw_tuner_nodes,
            )
        except (OSError, AttributeError) as error:
            raise NoMeasurement(
                f"{path} cannot steer NCCL: {error}",
                INSTALL.replace("install", "install --upgrade"),
            ) from error
        self._steer.argtypes, self._steer.restype = (
            (ctypes.c_int, ctypes.c_size_t, *(ctypes.c_int,) * 3),
            None,
        )
        self._costs.argtypes, self._costs.restype = (
            (ctypes.POINTER(ctypes.c_float), ctypes.c_size_t),
            ctypes.c_size_t,
        )
        self._nodes.argtypes, self._nodes.restype = (), ctypes.c_size_t
        # communicators that are created from now on have a tuner
        self._steer(NOTHING, 0, NOTHING, NOTHING, 0)

    def steer(self, collective: str, size_bytes: int, choice: Choice | None) -> None:
        """See Tuner."""
        algorithm, protocol = choice.numbers if choice else (NOTHING, NOTHING)
        self._steer(
            TUNED.index(collective),
            size_bytes,
            algorithm,
            protocol,
            choice.channels if choice else 0,
        )

    def costs(self) -> dict[Choice, float]:
        """See Tuner."""
        table = (ctypes.c_float * ENTRIES)()
        count = self._costs(table, ENTRIES)
        return {
            choice: cost * US
            for choice, cost in zip(_every(), table[:count], strict=False)
            if cost >= 0
        }

    def nodes(self) -> int:
        """See Tuner."""
        return int(self._nodes())


def _every() -> Iterator[Choice]:
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            yield Choice(algorithm, protocol)
