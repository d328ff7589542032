"""Memory that the GPU retires at its next reset."""

from collections.abc import Iterator

from busbw.check.base import Check, judged
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW009",
    name="gpu-remap-pending",
    layer=Layer.GPU,
    title="pending row remapping or page retirement",
    right="none pending",
    why="The GPU found bad memory and remaps it at its next reset. Until then that memory is unused, and another error there kills the "
    "job.",
    fix="drain the host, then nvidia-smi -i {gpu} --gpu-reset",
    stays="yes: the GPU keeps the new rows",
    reads=("nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPagesPendingStatus"),
    sources=("NVIDIA GPU memory error management",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.remapped is not None:
        pending, function, what = bool(gpu.remapped[2]), "RemappedRows", "row remapping"
    elif gpu.retired_pending is not None:  # before Ampere, pages are retired
        pending, function, what = gpu.retired_pending, "RetiredPagesPendingStatus", "page retirement"
    else:
        return unreported(gpu, "remapped", "state of row remapping")
    return judged(
        right=not pending,
        subject=gpu.label,
        good=f"no {what} is pending",
        bad=f"a {what} waits for a reset of the GPU",
        evidence=(said(gpu, function, "pending" if pending else "none pending", "none pending"),),
        fix=filled(ROW.fix, gpu=gpu.index),
    )


CHECK = Check(ROW, look)
