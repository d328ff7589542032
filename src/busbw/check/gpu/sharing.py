"""Who may use a GPU, and who does."""

from collections.abc import Iterator

from busbw.check.base import check, failed, not_offered, passed, warned
from busbw.check.gpu.per_gpu import each_gpu, in_wsl, nvml_evidence, per_gpu, unreported
from busbw.check.machine import WITH_CPU, Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted, format_size
from busbw.host.gpu_health import GpuHealth

IN_CONTAINER = "nvidia-smi on the host lists the processes; stop those that belong to no job"
MIN_BYTES_IN_USE = 1 << 30  # bytes; less may be the driver's own
NAMED_PROCESSES = 4

MEMORY_IN_USE = CheckRow(
    id="BW015",
    name="gpu-memory-in-use",
    layer=Layer.GPU,
    title="memory in use",
    right="no process holds memory",
    why=(
        "A process that a job left behind holds GPU memory and uses the GPU. The next job runs "
        "out of memory, or is slower than on other hosts."
    ),
    fix="ps -fp {pids}; if they belong to no job: kill {pids}",
    stays="yes, until a job leaves a process behind again; a scheduler epilog can kill them",
    reads=("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMemoryInfo"),
    sources=(
        "nvidia-smi manual, processes",
        "NVML, nvmlDeviceGetMemoryInfo: GPUs that are NUMA nodes",
    ),
)
PROHIBITED = 2
# nvml.h, nvmlComputeMode_t
MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}


@check(MEMORY_IN_USE)
def check_memory_in_use(machine: Machine) -> Iterator[Finding]:
    return each_gpu(
        machine,
        lambda gpu: _judge_memory_in_use(gpu, container=machine.container, shared=in_wsl(machine)),
    )


def _judge_memory_in_use(gpu: GpuHealth, *, container: bool, shared: bool) -> Finding:
    processes = gpu.processes or ()
    # In a container NVML may not list processes of other containers.
    if not processes and gpu.used_bytes is None:
        return unreported(gpu, "memory_bytes", "memory in use")
    used = "unknown" if gpu.used_bytes is None else format_size(gpu.used_bytes)
    evidence = nvml_evidence(
        gpu,
        "MemoryInfo",
        f"{used} in use by {counted(len(processes), 'process', 'es')}",
        f"below {format_size(MIN_BYTES_IN_USE)}, no process",
    )
    if processes:
        named_processes = processes[:NAMED_PROCESSES]
        named = ", ".join(f"{process.pid} {process.name}".strip() for process in named_processes)
        # In a container these may be pids of the host.
        kill = filled(MEMORY_IN_USE.fix, pids=[str(process.pid) for process in named_processes])
        return warned(
            gpu.label,
            f"in use by {named}: {used}",
            evidence,
            fix=IN_CONTAINER if container else kill,
            weight=gpu.used_bytes or 0,
        )
    if (gpu.used_bytes or 0) < MIN_BYTES_IN_USE:
        return passed(gpu.label, "no process uses it", evidence)
    return _judge_without_process(gpu, used, evidence, shared=shared)


def _judge_without_process(
    gpu: GpuHealth, used: str, evidence: Evidence, *, shared: bool
) -> Finding:
    """The finding on memory in use that no listed process has."""
    text = f"{used} in use"
    if shared:
        message = f"{text}, no process: Windows may use it, whose processes are not listed here"
        return not_offered(gpu.label, message, evidence)
    # The kernel may use the memory of these GPUs like any NUMA node.
    if gpu.name.startswith(WITH_CPU):
        message = f"{text}, no process: the kernel may keep files in it, as it is a NUMA node"
        return not_offered(gpu.label, message, evidence)
    message = f"{text}, but NVML lists no process: it may run in another container, or be dead"
    fix = (
        f"as root: fuser -v /dev/nvidia{gpu.index}; without a process: drain the host; nvidia-smi"
        f" -i {gpu.index} --gpu-reset"
    )
    return warned(gpu.label, message, evidence, fix=fix)


COMPUTE_MODE = CheckRow(
    id="BW016",
    name="gpu-compute-mode",
    layer=Layer.GPU,
    title="compute mode",
    right="Default",
    why=(
        "In Prohibited mode no CUDA program can use the GPU. In Exclusive_Process mode only one "
        "can: a process left by the last job makes the next one fail."
    ),
    fix="nvidia-smi -i {gpu} -c DEFAULT",
    stays="a reboot clears the mode too; remove it from the script or service that sets it",
    reads=("nvmlDeviceGetComputeMode",),
    sources=("nvidia-smi manual, compute mode",),
)


@per_gpu(COMPUTE_MODE)
def check_compute_mode(gpu: GpuHealth) -> Finding:
    if gpu.compute_mode is None:
        return unreported(gpu, "compute_mode", "compute mode")
    mode = MODES.get(gpu.compute_mode, str(gpu.compute_mode))
    evidence = nvml_evidence(gpu, "ComputeMode", mode, MODES[0])
    fix = filled(COMPUTE_MODE.fix, gpu=gpu.index)
    if gpu.compute_mode == PROHIBITED:
        return failed(
            gpu.label, f"compute mode {mode}: no CUDA program can use it", evidence, fix=fix
        )
    if gpu.compute_mode:
        return warned(
            gpu.label, f"compute mode {mode}: only one process can use it", evidence, fix=fix
        )
    return passed(gpu.label, f"compute mode {mode}", evidence)


MIG = CheckRow(
    id="BW017",
    name="gpu-mig",
    layer=Layer.GPU,
    title="MIG mode",
    right="off, and not about to change",
    why=(
        "MIG partitions a GPU into instances, which have no NVLink to each other. Most versions "
        "of NCCL do not support collectives between them."
    ),
    fix=(
        "unless the scheduler hands out MIG instances: drain the host; nvidia-smi -i {gpu} -mig "
        "0; on A100 then nvidia-smi -i {gpu} --gpu-reset"
    ),
    stays=(
        "yes on A100, where the GPU keeps it; on Hopper and later MIG is off after a reboot, unless"
        " a service sets it"
    ),
    reads=("nvmlDeviceGetMigMode",),
    sources=("NVIDIA Multi-Instance GPU user guide",),
)


@per_gpu(MIG)
def check_mig(gpu: GpuHealth) -> Finding:
    if gpu.mig is None:
        return unreported(gpu, "mig", "MIG mode")
    evidence = nvml_evidence(
        gpu,
        "MigMode",
        f"{'on' if gpu.mig else 'off'}, pending {'on' if gpu.mig_pending else 'off'}",
        "off, pending off",
    )
    fix = filled(MIG.fix, gpu=gpu.index)
    if gpu.mig:
        return warned(
            gpu.label, "MIG is on: collectives between GPUs may not work", evidence, fix=fix
        )
    if gpu.mig_pending:
        return warned(
            gpu.label, "MIG is off, but will be on after the next reset", evidence, fix=fix
        )
    return passed(gpu.label, "MIG is off", evidence)
