"""One rank of test_memory.py, as of torchrun: on rank 1 there is no memory for one backend."""

import os
from contextlib import ExitStack
from typing import Any

from busbw.backends.job import BackendsRun
from busbw.backends.types import BackendsJob, SizeMeasured
from busbw.core.sweep import Sampling, SweepSpec
from busbw.engines.torch_blocks import BlocksEngine
from busbw.launch.rendezvous import join
from busbw.measure.process_groups import join_groups

TOO_MANY_BYTES = 1 << 60
_allocate = BlocksEngine.allocate


def _allocate_too_much(engine: BlocksEngine, send_bytes: int, recv_bytes: int) -> None:
    _allocate(engine, send_bytes if engine._packed else TOO_MANY_BYTES, recv_bytes)


def _measured(lacking: str) -> dict[str, Any]:
    """What this rank leaves out, and which backends have a time; those only on rank 0."""
    control = join(dict(os.environ), expect=2)
    if control.process == 1:
        BlocksEngine.allocate = _allocate_too_much  # type: ignore[method-assign]
    job = BackendsJob(
        engine="torch",
        sweep=SweepSpec(
            collective="sendrecv",
            min_bytes=1 << 10,
            max_bytes=1 << 10,
            sampling=Sampling(precision=0.0, max_time_s=0.01),
        ),
        blocks=4,
        backends=["gloo", lacking, "gloo-packed"],
        limit_s=20.0,
    )
    events: list[Any] = []
    with ExitStack() as stack:
        run = BackendsRun(job, join_groups(control), events.append, lambda *_: None)
        run.open_all(stack)
        run.sweep()
    control.close()
    times = [time for one in events if isinstance(one, SizeMeasured) for time in one.row.times]
    return {"left_out": run._left_out, "timed": [time.backend for time in times if time.cell]}


def grouped() -> dict[str, Any]:
    """Gloo has no memory on rank 1."""
    return _measured("gloo-grouped")


def one_sided() -> dict[str, Any]:
    """NIXL has no memory on rank 1."""
    return _measured("nixl")
