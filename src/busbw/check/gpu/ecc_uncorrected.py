"""Memory errors that ECC could not correct."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, warned
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW008",
    name="gpu-ecc-uncorrected",
    layer=Layer.GPU,
    title="uncorrected ECC errors",
    right="none since the driver was loaded, and none in SRAM over the life of the GPU",
    why="An uncorrected error kills the programs whose data it hit (Xid 48, 94 or 95). The GPU remaps rows of DRAM with errors; SRAM has "
    "no spare rows.",
    fix="drain the host; nvidia-smi -i {gpu} --gpu-reset; dcgmi diag -r 3; replace the GPU if errors come back",
    stays="a reset clears the counts since the driver was loaded, but not the lifetime counts",
    reads=("nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetSramEccErrorStatus"),
    sources=("NVIDIA GPU memory error management",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.ecc is False:
        return skipped("ECC is off: errors are not counted", gpu.label)
    if not gpu.uncorrected:
        return unreported(gpu, "uncorrected", "count of uncorrected errors")
    now, ever = sum(gpu.uncorrected.values()), gpu.uncorrected_ever
    evidence = (
        said(gpu, "MemoryErrorCounter", f"since the driver was loaded {_shown(gpu.uncorrected)}", 0),
        said(gpu, "MemoryErrorCounter", f"ever {_shown(ever)}", "sram 0"),
    )
    fix = filled(ROW.fix, gpu=gpu.index)
    if gpu.sram_exceeded:
        return failed(gpu.label, "the driver's threshold of SRAM errors is exceeded: replace the GPU", *evidence, fix=fix)
    if now:
        return failed(gpu.label, f"uncorrected memory errors since the driver was loaded: {now}", *evidence, fix=fix, weight=now)
    if ever.get("sram"):
        return warned(
            gpu.label, f"uncorrected SRAM errors over the life of the GPU: {ever['sram']}", *evidence, fix=fix, weight=ever["sram"]
        )
    return passed(gpu.label, "no uncorrected memory error since the driver was loaded", *evidence)


def _shown(counts: dict[str, int]) -> str:
    return ", ".join(f"{place} {count}" for place, count in counts.items()) or "not reported"


CHECK = Check(ROW, look)
