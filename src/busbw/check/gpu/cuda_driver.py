"""Whether the driver is new enough for the installed NCCL's CUDA version."""

import json
from collections.abc import Iterator

from busbw.check.base import Check, judged, not_offered, skipped, unread
from busbw.check.gpu.each import no_gpus
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nccl_packages import CALL, built_for, read_packages
from busbw.host.nvml_health import read_health

ROW = CheckRow(
    id="BW020",
    name="gpu-cuda-driver",
    layer=Layer.GPU,
    title="CUDA version of the driver, compared with the installed NCCL",
    right="the driver supports the CUDA major version for which the NCCL Python package was built",
    why="A program built for a newer CUDA major version than the driver supports does not start: CUDA driver version is insufficient for "
    "CUDA runtime version.",
    fix="drain the host and update the driver to one that supports CUDA {needed}, or: pip install nvidia-nccl-cu{has}",
    stays="yes, for this Python environment",
    reads=("nvmlSystemGetCudaDriverVersion", "Python packages nvidia-nccl-cu*"),
    sources=("CUDA compatibility guide, minor version compatibility",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each installed package of NCCL."""
    gpus = read_health(machine)
    reading = machine.call(CALL, read_packages)
    if missing := no_gpus(machine, gpus):
        yield missing
    elif gpus.cuda is None:
        yield not_offered("", "NVML does not report the CUDA version")
    elif reading.text is None:
        yield unread("", reading, "the list of Python packages")
    else:
        yield from _packages(gpus.cuda, json.loads(reading.text))


def _packages(cuda: int, packages: list[tuple[str, str]]) -> Iterator[Found]:
    has = f"{cuda // 1000}.{cuda % 1000 // 10}"
    if not packages:
        yield skipped("this Python has no package nvidia-nccl-cu*")
    for name, version in packages:
        needed = built_for(name)
        yield judged(
            right=needed <= cuda // 1000,
            subject=name,
            good=f"NCCL {version} needs CUDA {needed}, the driver supports up to {has}",
            bad=f"NCCL {version} needs CUDA {needed}, but the driver supports only up to {has}",
            evidence=(Evidence("nvmlSystemGetCudaDriverVersion", has, f"{needed}.0 or newer"),),
            fix=filled(ROW.fix, needed=needed, has=cuda // 1000),
            fails=True,
        )


CHECK = Check(ROW, look)
