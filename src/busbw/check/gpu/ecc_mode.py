"""ECC of GPU memory."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW007",
    name="gpu-ecc-mode",
    layer=Layer.GPU,
    title="ECC of GPU memory",
    right="on, and not about to change",
    why="Without ECC a flipped bit in GPU memory changes results silently. A pending mode makes this host differ from others after its "
    "next reboot.",
    fix="drain the host; nvidia-smi -i {gpu} -e 1; nvidia-smi -i {gpu} --gpu-reset (or reboot)",
    stays="yes: the GPU keeps it",
    reads=("nvmlDeviceGetEccMode",),
    sources=("nvidia-smi manual, ECC mode",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.ecc is None:
        return unreported(gpu, "ecc", "ECC mode")
    evidence = said(gpu, "EccMode", f"{_word(gpu.ecc)}, pending {_word(gpu.ecc_pending)}", "on, pending on")
    fix = filled(ROW.fix, gpu=gpu.index)
    if not gpu.ecc:
        later = "; it will be on after the next reset" if gpu.ecc_pending else ""
        return warned(gpu.label, f"ECC is off: memory errors go undetected{later}", evidence, fix=fix)
    if gpu.ecc_pending is False:
        return warned(gpu.label, "ECC is on, but will be off after the next reset", evidence, fix=fix)
    return passed(gpu.label, "ECC is on", evidence)


def _word(on: bool | None) -> str:
    return "on" if on else "off"


CHECK = Check(ROW, look)
