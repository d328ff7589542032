"""What ranks agree on before they use each other's memory."""

import pytest

from busbw.core.errors import CudaFailed, NoMeasurement
from busbw.engines.cuda_ipc import agreed
from busbw.launch.control import SoloControl


class WithAnother(SoloControl):
    """Of two ranks the second, whose answer is given."""

    processes = 2

    def __init__(self, other: tuple[object, str]) -> None:
        self._other = other

    def allgather(self, value: object) -> list[object]:
        return [self._other, value]


def fails() -> int:
    raise CudaFailed("cuMemAlloc: out of memory", "free it")


def test_all_values_in_order_of_rank() -> None:
    assert agreed(WithAnother((5, "")), lambda: 6) == [5, 6]


def test_a_failure_of_any_rank_is_one_of_all() -> None:
    with pytest.raises(NoMeasurement, match=r"^rank 1: cuMemAlloc: out of memory"):
        agreed(WithAnother((5, "")), fails)
    with pytest.raises(NoMeasurement, match=r"^rank 0: no peer access"):
        agreed(WithAnother((None, "no peer access")), lambda: 6)
