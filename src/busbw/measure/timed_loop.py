"""Which loop enqueues the timed operations: busbw-native's, or Python's, which adds to the time
of small ones.

All processes use the same, so that none is slower than the others.
"""

import os
import platform
from dataclasses import dataclass
from importlib.util import find_spec

from busbw.core import native
from busbw.core.env import LOOP
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.result import NATIVE_LOOP, PYTHON_LOOP
from busbw.core.sweep import SweepSpec
from busbw.engines.base import Engine
from busbw.engines.program import Loop
from busbw.launch.control import Control
from busbw.measure.timing import can_loop


@dataclass(frozen=True, slots=True)
class AgreedLoop:
    """The loop of all processes.

    `loop` is None for Python's. `name` is that of core.result.Result. `note` says why it is not
    busbw-native's if the user can change that.
    """

    loop: Loop | None = None
    name: str = ""
    note: str = ""


def agreed(engine: Engine, control: Control, spec: SweepSpec) -> AgreedLoop:
    """The loop of this sweep on an opened engine. Collective.

    NoMeasurement if BUSBW_LOOP asks for busbw-native's loop and a process cannot use it.
    """
    choice = _choice()
    loop, problem = _open(engine)
    problems = [reason for reason in control.allgather(problem) if reason]
    if loop is None and not problems:
        return AgreedLoop()
    if choice == NATIVE_LOOP and (problems or not can_loop(spec)):
        message, hint = problems[0] if problems else _NEEDS_PYTHON
        raise NoMeasurement(f"{LOOP}={choice}: {message}", hint)
    if choice == PYTHON_LOOP or not can_loop(spec):
        return AgreedLoop(name=PYTHON_LOOP)
    if problems:
        return AgreedLoop(name=PYTHON_LOOP, note=_note(problems[0], spec))
    return AgreedLoop(loop, NATIVE_LOOP)


_NEEDS_PYTHON = ("-z and -G need Python's loop", f"unset {LOOP}, or leave them out")


def _choice() -> str:
    """The value of BUSBW_LOOP; '' for busbw-native's loop where it can be used."""
    choice = os.environ.get(LOOP, "")
    if choice not in ("", NATIVE_LOOP, PYTHON_LOOP):
        raise UsageError(
            f"{LOOP}={choice}: not a loop", f"set it to {NATIVE_LOOP} or {PYTHON_LOOP}"
        )
    return choice


def _open(engine: Engine) -> tuple[Loop | None, tuple[str, str] | None]:
    """The loop of this process, and what keeps it from using one, with the remedy."""
    try:
        return engine.loop(), None
    except NoMeasurement as error:
        return None, (f"{error.message} on {platform.node()}", error.hint)


def _note(problem: tuple[str, str], spec: SweepSpec) -> str:
    """Precise times do not depend on the loop, so that nothing is lost where none is installed."""
    is_installed = bool(find_spec(native.PACKAGE) or os.environ.get(native.OWN_VARIABLE))
    if spec.sampling and not is_installed:
        return ""
    message, hint = problem
    return f"note: NCCL is called from Python, which adds to small sizes: {message}; {hint}"
