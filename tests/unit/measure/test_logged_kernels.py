"""A kernel over symmetric memory that NCCL's profiler interface does not name is named by NCCL's log,
of an operation that is run for it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from asked_engine import RING_LL, Asked, agreed, party
from test_nccl_connections import said

from busbw.core.ran import NcclKernel
from busbw.engines.nccl_log import FILE, SUBSYSTEMS, Log, MemoryLog
from busbw.launch.control import SoloControl
from busbw.measure.logged_kernels import LoggedKernels

UNNAMED = NcclKernel("Symmetric", "")
NAMED = NcclKernel("Symmetric", "", 3, "AllReduce_AGxLL_R")
CONNECTED = said("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
LINE = said(
    "AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 3 nthreads 512 nWorks 1"
)


class Logging(Asked):
    """An engine whose NCCL writes a line for each operation while it logs choices."""

    reads_log_variables = True

    def __init__(self, log: MemoryLog, kernels: Sequence[NcclKernel], interface: int) -> None:
        super().__init__(kernels, interface)
        self.operations, self.subsystems = 0, "INIT,NET"
        self._path = log.variables[FILE]
        Path(self._path).write_text(CONNECTED)

    def read_log_variables(self) -> None:
        self.subsystems = os.environ[SUBSYSTEMS]
        Path(os.environ[FILE]).write_bytes(b"")

    def launch(self) -> None:
        self.operations += 1
        if "TUNING" in self.subsystems:
            with Path(self._path).open("a") as file:
                file.write(LINE)


@pytest.mark.parametrize(
    ("kernels", "interface", "found", "operations"),
    [
        ([UNNAMED], 5, NAMED, 2),
        ([UNNAMED], 6, NAMED, 2),
        ([], 4, NAMED, 2),
        ([], 6, None, 1),
        ([RING_LL], 6, RING_LL, 1),
        ([UNNAMED], 7, UNNAMED, 1),
        ([NAMED], 7, NAMED, 1),
        ([], 2, None, 1),
    ],
)
def test_one_further_operation_names_the_kernel(
    kernels: list[NcclKernel], interface: int, found: NcclKernel | None, operations: int
) -> None:
    log = MemoryLog()
    engine = Logging(log, kernels, interface)
    recorder = agreed(engine, party(SoloControl()), log=log)
    assert recorder.record(engine.launch, 0) == found
    assert engine.operations == operations and engine.subsystems == "INIT,NET"
    assert log.text == CONNECTED + (LINE if operations > 1 else "")
    assert SUBSYSTEMS not in os.environ
    log.close()
    assert log.text.startswith(CONNECTED) and not log.has_choices
    assert recorder.record(engine.launch, 0) == (kernels or [None])[0], "a closed log says nothing"


def test_a_log_of_the_users_is_left_alone() -> None:
    log = MemoryLog()
    engine = Logging(log, [UNNAMED], 6)
    recorder = agreed(engine, party(SoloControl()), log=Log(lambda: LINE))
    assert recorder.record(engine.launch, 0) == UNNAMED and engine.operations == 1
    assert not LoggedKernels(Log(lambda: ""), engine).has_more
    engine.reads_log_variables = False
    assert not LoggedKernels(log, engine).has_more
    log.close()
