"""This machine after a load, as a source of readings for checks."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from busbw.check.load import all_reduce, gpu_copies, rdma_loopback
from busbw.host.source import LiveMachine, Reading, Source, Unavailable


class Loaded(LiveMachine):
    """This machine, after a load of `seconds` on each GPU, then on each RDMA port next to a GPU,
    then on all GPUs together, which is compared with the runs in the file `own_runs` too.

    The load runs in its own process, so that checks do not see its memory, and a hung GPU can be
    given up.
    """

    def __init__(self, seconds: float, own_runs: Path | None = None) -> None:
        super().__init__()
        self._seconds, self._own_runs = seconds, own_runs

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """The result of a load or of any other call."""
        if name == gpu_copies.CALL:
            return Reading(msgspec.json.encode(gpu_copies.run(self._seconds)))
        if name == rdma_loopback.CALL:
            return Reading(msgspec.json.encode(rdma_loopback.run(self._seconds)))
        if name == all_reduce.CALL:
            return Reading(msgspec.json.encode(all_reduce.run(self._seconds, self._own_runs)))
        return super().call(name, live)


def begin(source: Source) -> None:
    """Make the loads. This comes before all other reads."""
    source.call(gpu_copies.CALL, not_asked)
    source.call(rdma_loopback.CALL, not_asked)
    source.call(all_reduce.CALL, not_asked)


def not_asked() -> str:
    """What a machine that was put under no load has of one."""
    raise Unavailable("no load was asked for")
