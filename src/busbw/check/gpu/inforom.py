"""The configuration memory of a GPU."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed
from busbw.check.gpu.each import each
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW261",
    name="gpu-inforom",
    layer=Layer.GPU,
    title="InfoROM",
    right="its checksum is valid",
    why="The InfoROM holds the settings of the board, its ECC counts and its list of remapped rows. If it is corrupted, ECC and row "
    "remapping may be off without another sign.",
    fix="drain the host; nvidia-smi -i {gpu} --gpu-reset; if the InfoROM is still corrupted after a reboot, replace the GPU (RMA)",
    stays="permanent: a hardware replacement",
    reads=("nvmlDeviceValidateInforom",),
    sources=("nvml.h, nvmlDeviceValidateInforom",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.inforom is None:
        return not_offered(gpu.label, "its driver does not validate the InfoROM")
    evidence = Evidence(f"nvmlDeviceValidateInforom, {gpu.label}", "valid" if gpu.inforom else "Corrupted infoROM", "valid")
    if gpu.inforom:
        return passed(gpu.label, "the InfoROM is valid", evidence)
    return failed(gpu.label, "the InfoROM is corrupted", evidence, fix=filled(ROW.fix, gpu=gpu.index))


CHECK = Check(ROW, look)
