"""Steps that may fail on one rank: all ranks learn why, before any goes on to what needs them all.

All functions are collective.
"""

from collections.abc import Callable
from typing import TypeVar

from busbw.core.errors import BusbwError, NoMeasurement, first_line
from busbw.launch.control import Control

# What libraries raise that refuse a step. Any other exception ends the rank.
FAILURES = (BusbwError, RuntimeError, AssertionError, ValueError, TypeError)
T = TypeVar("T")


def first_reason(control: Control, reason: str) -> str:
    """The first reason of any rank, with the rank if not all have one; '' if none has."""
    reasons = control.allgather(reason)
    first: str = next(filter(None, reasons), "")
    return first if not first or all(reasons) else f"rank {reasons.index(first)}: {first}"


def attempt(
    control: Control,
    make: Callable[[], T],
    explained: Callable[[Exception], Exception] = lambda error: error,
) -> tuple[T | None, str]:
    """What `make` returns on this rank, None if it failed here, and the first reason why it failed
    on any rank.

    `make` must not wait for other ranks after a step that may fail on one alone. `explained` turns
    an error into the one whose text is the reason.
    """
    made, failed = None, ""
    try:
        made = make()
    except FAILURES as error:
        failed = first_line(explained(error))
    return made, first_reason(control, failed)


def of_all_ranks(control: Control, make: Callable[[], T], hint: str = "") -> list[T]:
    """What `make` returns on each rank. NoMeasurement on all ranks if it fails on one."""
    made, failed = attempt(control, make)
    if failed:
        raise NoMeasurement(failed, hint)
    answers: list[T] = control.allgather(made)
    return answers
