"""Has the library of busbw-native, in Rust, run the timed loop of the nccl engine: no Python runs
between two calls of NCCL.
"""

import ctypes
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from busbw.core.errors import BusbwError, NoMeasurement
from busbw.core.native import ErrorText, Room
from busbw.engines import nccl_steps
from busbw.engines.cuda_runtime import CudaGpu, Events, Stream, driver, refuse
from busbw.engines.native_library import library, of_another_build
from busbw.engines.nccl_comms import version_text
from busbw.engines.nccl_steps import LAYOUT, OF_NCCL, Encoder, pack
from busbw.engines.program import Mark, Part, ProgramMarker, ProgramTimes

# How long a run stays away from Python, which handles signals.
RUN_S = 1.0
# Longer waits are left to Python, which asks NCCL for errors of peers.
WAIT_S = 0.02


class _LoopLimits(ctypes.Structure):
    _fields_ = (
        ("iterations", ctypes.c_uint64),
        ("run_s", ctypes.c_double),
        ("idle_s", ctypes.c_double),
    )


class _LoopOutcome(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_int),
        ("kind", ctypes.c_uint32),
        ("idle", ctypes.c_uint32),
        ("iterations", ctypes.c_uint64),
        ("start_s", ctypes.c_double),
        ("enqueued_s", ctypes.c_double),
        ("end_s", ctypes.c_double),
    )


_POINTER = ctypes.c_void_p
FUNCTIONS = {
    "busbw_loop_step_bytes": (ctypes.c_size_t, ()),
    "busbw_loop_open": (_POINTER, (ctypes.c_char_p, ctypes.c_size_t, Room)),
    "busbw_loop_run": (
        ctypes.c_int,
        (_POINTER, _LoopLimits, _POINTER, _POINTER, ctypes.c_size_t, _POINTER, Room),
    ),
    "busbw_loop_close": (None, (_POINTER,)),
}


@dataclass(frozen=True, slots=True)
class Queues:
    """The local GPUs, each with its stream and its events."""

    gpus: Sequence[CudaGpu]
    streams: Sequence[Stream]
    events: Sequence[Events]


class NcclLoop:
    """See program.Loop. `wait` waits for all streams, with the engine's limit.

    NoMeasurement if busbw-native is not here or does not fit, or if this process has loaded
    another NCCL than the one of `nccl`.
    """

    def __init__(self, nccl: Any, version: int, queues: Queues, wait: Callable[[], None]) -> None:
        self._library = library(FUNCTIONS)
        step_bytes = self._library.busbw_loop_step_bytes()
        if step_bytes != LAYOUT.size:
            raise of_another_build(f"its steps have {step_bytes} bytes, not {LAYOUT.size}")
        self._nccl, self._queues, self._wait = nccl, queues, wait
        self._encoder = Encoder(nccl)
        found = ctypes.c_int()
        self._encoder.nccl.library.ncclGetVersion(ctypes.byref(found))
        if found.value != version:
            raise NoMeasurement(
                f"this process has loaded NCCL {version_text(found.value)} as well as"
                f" {version_text(version)}",
                "unset LD_PRELOAD, or preload the NCCL that is to be measured",
            )

    def program(self, parts: Sequence[Part], *, wait: bool) -> "NcclProgram":
        steps = b"".join(map(self._steps, parts))
        if wait:
            steps += b"".join(self._waits())
        clocks = sum(part is ProgramMarker.CLOCK for part in parts)
        wait_for_streams = self._wait if wait else None
        return NcclProgram(self._library, self._nccl, steps, clocks, parts, wait_for_streams)

    def _steps(self, part: Part) -> bytes:
        if part is ProgramMarker.END:
            return pack(nccl_steps.END)
        if part is ProgramMarker.CLOCK:
            return pack(nccl_steps.CLOCK)
        if isinstance(part, Mark):
            return b"".join(self._records(part.index))
        assert not isinstance(part, ProgramMarker)
        return self._encoder.steps(part)

    def _records(self, index: int) -> list[bytes]:
        """The steps of a mark."""
        steps: list[bytes] = []
        queues = self._queues
        for number, (stream, events) in enumerate(zip(queues.streams, queues.events, strict=True)):
            steps += self._activations(number)
            steps.append(self._encoder.record(events.handle(index), stream.handle))
        return steps

    def _waits(self) -> list[bytes]:
        """The steps that wait for all streams."""
        steps: list[bytes] = []
        for number, stream in enumerate(self._queues.streams):
            steps += self._activations(number)
            steps.append(self._encoder.wait_for(stream.handle))
        return steps

    def _activations(self, number: int) -> list[bytes]:
        """The step that makes a GPU the current one, if there are several."""
        gpus = self._queues.gpus
        return [self._encoder.set_context(gpus[number].context)] if len(gpus) > 1 else []


class NcclProgram:
    """See program.Program. It keeps the parts, whose memory its steps use."""

    def __init__(
        self,
        loaded: ctypes.CDLL,
        nccl: Any,
        steps: bytes,
        clocks: int,
        parts: Sequence[Part],
        wait: Callable[[], None] | None,
    ) -> None:
        self._done, self._requested = ctypes.c_uint64(), 0
        self._nccl, self._parts, self._wait = nccl, tuple(parts), wait
        self._text = ErrorText()
        self._times = (ctypes.c_double * clocks)()
        count = len(steps) // LAYOUT.size
        program = loaded.busbw_loop_open(steps, count, self._text.room())
        if program is None:
            raise BusbwError(f"busbw-native: {self._text.message()}", "report it with the command")
        weakref.finalize(self, loaded.busbw_loop_close, program)
        self._limits, self._outcome = _LoopLimits(0, RUN_S, WAIT_S), _LoopOutcome()
        # The arguments are made here: a run follows a barrier, and ranks that take unequally long
        # to start would wait for each other.
        self._call = partial(
            loaded.busbw_loop_run,
            program,
            self._limits,
            ctypes.byref(self._done),
            self._times,
            clocks,
            ctypes.byref(self._outcome),
            self._text.room(),
        )

    def iterations_left(self) -> int:
        return max(self._requested - self._done.value, 0)

    def run(self, iterations: int) -> ProgramTimes:
        done, outcome = self._done, self._outcome
        done.value, self._requested = 0, iterations
        self._run(iterations)
        start_s = outcome.start_s
        while done.value < iterations:
            self._run(iterations - done.value)
        end_s = outcome.end_s
        if self._wait is not None and not outcome.idle:
            self._wait()
            end_s = time.perf_counter()
        return ProgramTimes(start_s, outcome.enqueued_s, end_s, list(self._times))

    def _run(self, iterations: int) -> None:
        self._limits.iterations = iterations
        failed = self._call()
        outcome = self._outcome
        if failed:
            raise BusbwError(f"busbw-native: {self._text.message()}", "report it with the command")
        if outcome.code and outcome.kind in OF_NCCL:
            raise self._nccl.NCCLError(outcome.code)
        # A wait that fails is repeated by `self._wait`, which says what failed on which GPU.
        if outcome.code and outcome.kind != nccl_steps.IDLE:
            refuse(nccl_steps.OF_DRIVER[outcome.kind], driver().CUresult(outcome.code))
