"""GPUs that are in use before a test starts."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, warned
from busbw.check.gpu.each import each, in_wsl, said, unreported
from busbw.check.machine import Machine
from busbw.check.parts import WITH_CPU
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted, format_size
from busbw.host.gpu_health import GpuHealth

IN_CONTAINER = "nvidia-smi on the host lists the processes; stop those that belong to no job"
LEAST = 1 << 30  # bytes; less may be the driver's own
NAMED = 4  # processes

ROW = CheckRow(
    id="BW015",
    name="gpu-memory-in-use",
    layer=Layer.GPU,
    title="memory in use",
    right="no process holds memory",
    why="A process that a job left behind holds GPU memory and uses the GPU. The next job runs out of memory, or is slower than on other "
    "hosts.",
    fix="ps -fp {pids}; if they belong to no job: kill {pids}",
    stays="yes, until a job leaves a process behind again; a scheduler epilog can kill them",
    reads=("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMemoryInfo"),
    sources=("nvidia-smi manual, processes", "NVML, nvmlDeviceGetMemoryInfo: GPUs that are NUMA nodes"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, lambda gpu: _judge(gpu, container=machine.container, shared=in_wsl(machine)))


def _judge(gpu: GpuHealth, *, container: bool, shared: bool) -> Found:
    processes = gpu.processes or ()
    if not processes and gpu.used_bytes is None:  # in a container NVML may not list processes of others
        return unreported(gpu, "memory_bytes", "memory in use")
    used = "unknown" if gpu.used_bytes is None else format_size(gpu.used_bytes)
    evidence = said(
        gpu, "MemoryInfo", f"{used} in use by {counted(len(processes), 'process', 'es')}", f"below {format_size(LEAST)}, no process"
    )
    if processes:
        named = ", ".join(f"{one.pid} {one.name}".strip() for one in processes[:NAMED])
        # In a container these may be pids of the host.
        fix = IN_CONTAINER if container else filled(ROW.fix, pids=[str(one.pid) for one in processes[:NAMED]])
        return warned(gpu.label, f"in use by {named}: {used}", evidence, fix=fix, weight=gpu.used_bytes or 0)
    if (gpu.used_bytes or 0) >= LEAST and shared:
        return not_offered(gpu.label, f"{used} in use, no process: Windows may use it, whose processes are not listed here", evidence)
    # The kernel may use the memory of these GPUs like any NUMA node.
    if (gpu.used_bytes or 0) >= LEAST and gpu.name.startswith(WITH_CPU):
        return not_offered(gpu.label, f"{used} in use, no process: the kernel may keep files in it, as it is a NUMA node", evidence)
    if (gpu.used_bytes or 0) >= LEAST:
        fix = f"as root: fuser -v /dev/nvidia{gpu.index}; without a process: drain the host; nvidia-smi -i {gpu.index} --gpu-reset"
        return warned(
            gpu.label, f"{used} in use, but NVML lists no process: it may run in another container, or be dead", evidence, fix=fix
        )
    return passed(gpu.label, "no process uses it", evidence)


CHECK = Check(ROW, look)
