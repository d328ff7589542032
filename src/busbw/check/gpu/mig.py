"""GPUs partitioned into instances (MIG)."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW017",
    name="gpu-mig",
    layer=Layer.GPU,
    title="MIG mode",
    right="off, and not about to change",
    why="MIG partitions a GPU into instances, which have no NVLink to each other. Most versions of NCCL do not support collectives "
    "between them.",
    fix="unless the scheduler hands out MIG instances: drain the host; nvidia-smi -i {gpu} -mig 0; on A100 then nvidia-smi -i {gpu} "
    "--gpu-reset",
    stays="yes on A100, where the GPU keeps it; on Hopper and later MIG is off after a reboot, unless a service sets it",
    reads=("nvmlDeviceGetMigMode",),
    sources=("NVIDIA Multi-Instance GPU user guide",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.mig is None:
        return unreported(gpu, "mig", "MIG mode")
    evidence = said(gpu, "MigMode", f"{'on' if gpu.mig else 'off'}, pending {'on' if gpu.mig_pending else 'off'}", "off, pending off")
    fix = filled(ROW.fix, gpu=gpu.index)
    if gpu.mig:
        return warned(gpu.label, "MIG is on: collectives between GPUs may not work", evidence, fix=fix)
    if gpu.mig_pending:
        return warned(gpu.label, "MIG is off, but will be on after the next reset", evidence, fix=fix)
    return passed(gpu.label, "MIG is off", evidence)


CHECK = Check(ROW, look)
