"""Thunks around NCCL calls: groups and graphs."""

from collections.abc import Sequence
from contextlib import suppress

from busbw.engines.base import Launch
from busbw.engines.cuda_runtime import Graph
from busbw.engines.nccl_comms import library


def together(launches: Sequence[Launch]) -> Launch:
    """All launches in one NCCL group."""
    nccl, every = library(), tuple(launches)
    start, end, kind = nccl.group_start, nccl.group_end, nccl.NCCLError

    def run() -> None:
        start()
        try:
            for launch in every:
                launch()
        except BaseException:
            with suppress(kind):  # an open group would keep even an abort waiting
                end()
            raise
        end()

    return run


class Replay:
    """One graph per local GPU, freed with the last reference to it."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self._graphs = tuple(graphs)

    def __call__(self) -> None:
        """Enqueue them."""
        for graph in self._graphs:
            graph.launch()

    def close(self) -> None:
        """Free them."""
        for graph in self._graphs:
            graph.close()

    def __del__(self) -> None:
        """Free what is left."""
        with suppress(Exception):  # at interpreter exit the driver may be gone before it
            self.close()
