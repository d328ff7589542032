"""Shared memory disabled."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

VARIABLE = "NCCL_SHM_DISABLE"

ROW = CheckRow(
    id="BW178",
    name="nccl-shm-disable",
    layer=Layer.NCCL,
    title=f"{VARIABLE} in the environment",
    right="not set, or 0",
    why="GPUs without direct access to each other then exchange data over the network, even inside a host. It is usually set to work "
    "around a small /dev/shm in containers.",
    fix=f"unset {VARIABLE}, and in containers --shm-size=1g or --ipc=host",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, NCCL_SHM_DISABLE",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if parse_int(setting.value) == 0:
        return passed("", f"{setting.text} is the default", setting.evidence())
    fix = f"{setting.unset}; start the container with --shm-size=1g or --ipc=host" if machine.container else setting.unset
    message = f"{setting.text}: GPUs without direct access use the network inside a host"
    return warned("", message, setting.evidence("not set"), fix=fix)


CHECK = Check(ROW, look)
