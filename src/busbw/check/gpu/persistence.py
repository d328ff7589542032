"""Persistence mode."""

from collections.abc import Iterator

from busbw.check.base import Check, judged
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW004",
    name="gpu-persistence",
    layer=Layer.GPU,
    title="persistence mode",
    right="on",
    why="Without it the driver unloads a GPU when its last client exits. The next start takes seconds longer, and clock settings and "
    "error counts are lost.",
    fix="nvidia-smi -i {gpu} -pm 1",
    stays="lost at the next reboot; systemctl enable --now nvidia-persistenced keeps it",
    reads=("nvmlDeviceGetPersistenceMode",),
    sources=("NVIDIA driver persistence documentation",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.persistence is None:
        return unreported(gpu, "persistence", "persistence mode")
    return judged(
        right=gpu.persistence,
        subject=gpu.label,
        good="persistence mode is on",
        bad="persistence mode is off: the driver unloads the GPU between jobs",
        evidence=(said(gpu, "PersistenceMode", "on" if gpu.persistence else "off", "on"),),
        fix=filled(ROW.fix, gpu=gpu.index),
    )


CHECK = Check(ROW, look)
