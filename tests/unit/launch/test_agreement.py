"""What ranks agree on before a step that needs them all."""

from typing import Any

import pytest

from busbw.core.errors import CudaFailed, NoMeasurement
from busbw.launch.agreement import attempt, first_reason, of_all_ranks
from busbw.launch.control import SoloControl


class WithAnother(SoloControl):
    """Of two ranks the second. The first has one answer after the other."""

    processes = 2

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def allgather(self, value: Any) -> list[Any]:
        return [self._answers.pop(0), value]


def fails() -> int:
    raise CudaFailed("cuMemAlloc: out of memory\nmore", "free it")


def test_a_reason_has_its_rank_if_the_others_have_none() -> None:
    assert first_reason(WithAnother(""), "") == ""
    assert first_reason(WithAnother(""), "old") == "rank 1: old"
    assert first_reason(WithAnother("new"), "old") == "new"


def test_a_failure_of_any_rank_is_one_of_all() -> None:
    assert attempt(WithAnother(""), lambda: 6) == (6, "")
    assert attempt(WithAnother(""), fails) == (None, "rank 1: cuMemAlloc: out of memory")
    assert attempt(WithAnother("no memory"), lambda: 6) == (6, "rank 0: no memory")


def test_an_error_without_text_is_named_by_its_class_and_can_be_explained() -> None:
    def refuse() -> None:
        raise AssertionError

    assert attempt(SoloControl(), refuse) == (None, "AssertionError")
    explained = attempt(SoloControl(), refuse, lambda error: NoMeasurement(f"{error!r} of Gloo"))
    assert explained == (None, "AssertionError() of Gloo")


def test_values_come_in_order_of_rank() -> None:
    assert of_all_ranks(WithAnother("", 5), lambda: 6) == [5, 6]


def test_without_a_value_of_each_rank_there_are_none() -> None:
    with pytest.raises(NoMeasurement, match=r"^rank 1: cuMemAlloc: out of memory") as raised:
        of_all_ranks(WithAnother("", 5), fails, "look there")
    assert raised.value.hint == "look there"
    with pytest.raises(NoMeasurement, match=r"^rank 0: no peer access"):
        of_all_ranks(WithAnother("no peer access"), lambda: 6)
