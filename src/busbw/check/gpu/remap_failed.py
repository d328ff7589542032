"""Bad memory for which the GPU has no spare rows."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

MOST = 512  # rows, of Azure's node health checks

ROW = CheckRow(
    id="BW010",
    name="gpu-remap-failed",
    layer=Layer.GPU,
    title="failed row remapping",
    right=f"none failed, and at most {MOST} rows remapped after uncorrected errors",
    why="A bank without spare rows keeps its bad memory, so uncorrected errors come back (Xid 64). Azure's "
    "node health checks fail a GPU with more than 512 such rows.",
    fix="drain the host and replace the GPU (RMA)",
    stays="permanent: a hardware replacement",
    reads=("nvmlDeviceGetRemappedRows",),
    sources=("NVIDIA GPU memory error management", "Azure node health checks, azure_gpu_ecc"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.remapped is None:
        return unreported(gpu, "remapped", "state of row remapping")
    corrected, uncorrected, _, broken = gpu.remapped
    seen = f"{'failed' if broken else 'none failed'}, {uncorrected} rows after uncorrected errors, {corrected} after corrected ones"
    evidence = said(gpu, "RemappedRows", seen, f"none failed, at most {MOST} rows after uncorrected errors")
    if broken:
        return failed(gpu.label, "row remapping has failed: a bank has no spare rows left", evidence, fix=ROW.fix, weight=float("inf"))
    if uncorrected > MOST:
        return failed(gpu.label, f"{uncorrected} rows were remapped after uncorrected errors", evidence, fix=ROW.fix, weight=uncorrected)
    return passed(gpu.label, "no row remapping has failed", evidence)


CHECK = Check(ROW, look)
