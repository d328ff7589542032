"""One rank of test_memory.py, as of torchrun: on rank 1 there is no memory for one backend.

`torchrun --nproc-per-node 2 memory_rank.py one-shot` prints the same of a backend on GPUs.
"""

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from busbw.backends import registry
from busbw.backends.job import BackendsRun
from busbw.backends.kind import SizeMeasured
from busbw.backends.types import BackendsJob
from busbw.core.sweep import Sampling, SweepSpec
from busbw.engines.base import Engine
from busbw.launch.rendezvous import join
from busbw.measure.process_groups import join_groups

TOO_MANY_BYTES = 1 << 60
LIMIT_S = 20.0


def _without_memory(row: registry.BackendRow) -> registry.BackendRow:
    def open_it(opening: registry.Opening) -> Engine:
        engine = row.open(opening)
        allocate = engine.allocate
        engine.allocate = lambda _, recv: allocate(TOO_MANY_BYTES, recv)  # type: ignore[method-assign]
        return engine

    return replace(row, open=open_it)


def measured(lacking: str, *others: str) -> dict[str, Any]:
    """What this rank leaves out, and which backends have a time; those only on rank 0."""
    control = join(dict(os.environ), expect=2)
    if control.process == 1:
        registry.BY_NAME[lacking] = _without_memory(registry.BY_NAME[lacking])
    of_blocks = registry.BY_NAME[lacking].of_blocks
    job = BackendsJob(
        engine="torch",
        sweep=SweepSpec(
            collective="sendrecv" if of_blocks else "all_reduce",
            datatype="bfloat16",
            min_bytes=1 << 10,
            max_bytes=1 << 10,
            sampling=Sampling(precision=0.0, max_time_s=0.01),
        ),
        blocks=4 if of_blocks else 0,
        backends=[others[0], lacking, *others[1:]],
        limit_s=LIMIT_S,
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
    return measured("gloo-grouped", "gloo", "gloo-packed")


def one_sided() -> dict[str, Any]:
    """NIXL has no memory on rank 1."""
    return measured("nixl", "gloo", "gloo-packed")


if __name__ == "__main__":
    print(json.dumps(measured(*sys.argv[1:])), flush=True)
