"""One rank of test_torch_nixl.py, as of torchrun: moves blocks by NIXL, and provokes its errors."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from busbw.core.errors import NoMeasurement
from busbw.core.sweep import Series, SweepSpec
from busbw.engines.base import Probe
from busbw.engines.torch_nixl import READ, WRITE, NixlEngine
from busbw.launch.control import Control
from busbw.launch.rendezvous import join
from busbw.measure import verification
from busbw.measure.plan import Calls

BLOCKS = 8
SIZES = (BLOCKS * 4096, BLOCKS * 4, 4 * (BLOCKS + 1))  # the last has not so many equal blocks
ROOM_BYTES, SHIFT_BYTES = 1 << 17, 1 << 16
SPEC = SweepSpec(collective="sendrecv")
LIMIT_S = 1.25


def _prepared(operation: str, control: Control) -> NixlEngine:
    place = (control.process, 0, control.process)
    engine = NixlEngine(control, SPEC, place, BLOCKS, operation, LIMIT_S)
    engine.allocate(ROOM_BYTES, ROOM_BYTES)
    engine.share()
    return engine


@contextmanager
def _opened(operation: str) -> Iterator[tuple[NixlEngine, Control]]:
    control = join(dict(os.environ), expect=2)
    engine = _prepared(operation, control)
    yield engine, control
    engine.close()
    control.close()


def _moved(operation: str) -> dict[str, Any]:
    """Wrong elements of each size, of a call far inside of the buffers, and of corrupt data."""
    with _opened(operation) as (engine, control):
        calls = Calls(SPEC, Series("float", "", -1), engine.size)
        wrong = []
        for shift_bytes in (0, SHIFT_BYTES):
            for size in SIZES:
                call = calls.at(size, in_place=False, shift_bytes=shift_bytes)
                launch, probe = engine.bind(call), Probe(5, call.dtype, None, engine.size)
                verification.write(engine, call, probe)
                control.barrier()
                launch()
                launch()  # the same descriptors again
                wrong += [each.count for each in verification.check(engine, call, probe)]
        engine.view(call, "recv")[3] ^= 0x40
        corrupt = verification.check(engine, call, probe)[0]
        return {
            "wrong": wrong,
            "corrupt": (corrupt.count, corrupt.offset),
            "library": engine.library().versions["nixl"],
        }


def reads() -> dict[str, Any]:
    """Blocks that are read out of the other rank's memory."""
    return _moved(READ)


def writes() -> dict[str, Any]:
    """Blocks that are written into the other rank's memory."""
    return _moved(WRITE)


def waits() -> list[str]:
    """What rank 0 says if rank 1 never moves its blocks, and of a call after that."""
    said: list[str] = []
    with _opened(READ) as (engine, control):
        call = Calls(SPEC, Series("float", "", -1), engine.size).at(SIZES[0], in_place=False)
        if control.process == 0:
            for step in (lambda: engine.bind(call)(), lambda: engine.bind(call)):
                try:
                    step()
                except NoMeasurement as error:
                    said.append(error.message)
        control.barrier()
    return said


def closed() -> tuple[str, bool]:
    """What NIXL says if it cannot release memory, and whether the process group is still there."""
    said = ""
    control = join(dict(os.environ), expect=2)
    engine = _prepared(READ, control)

    def refuse(_: Any) -> None:
        raise engine._errors[0]("it is in use")

    engine._agent.deregister_memory = refuse
    try:
        engine.close()
    except NoMeasurement as error:
        said = error.message
    left = dist.is_initialized()
    control.close()
    return said, left


def refused() -> str:
    """What NIXL says of memory that the other rank has not registered."""
    said = ""
    with _opened(WRITE) as (engine, _):
        engine._peer_places = dict.fromkeys(("send", "recv"), 4096)
        call = Calls(SPEC, Series("float", "", -1), engine.size).at(SIZES[0], in_place=False)
        try:
            engine.bind(call)
        except NoMeasurement as error:
            said = error.message
    return said
