"""Whether GPUs behind NVSwitch have joined their fabric."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, unanswered, warned
from busbw.check.gpu.each import confined
from busbw.check.machine import Machine
from busbw.check.nvlink.linked import switched
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import Fabric, GpuHealth
from busbw.host.nvidia_services import ABSENT, FABRIC_MANAGER, services, states

RACK = "NVIDIA GB"  # GB200 and GB300 NVL72
OUTSIDE = "check the fabric manager of the rack (NMX-Controller on an NVLink switch tray) and its log"
FAILED = "failed"  # of systemd: the service ended with an error
COMPLETED, NOT_SUPPORTED, SUCCESS, TRUE = 3, 0, 0, 1
STATES = {1: "Not started", 2: "In progress", 3: "Completed"}  # nvml.h, NVML_GPU_FABRIC_STATE_*
# nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: the shift of each field of two bits.
HEALTH = {0: "degraded bandwidth", 2: "route recovery in progress", 4: "route unhealthy", 6: "access timeout recovery in progress"}

ROW = CheckRow(
    id="BW033",
    name="nvlink-fabric",
    layer=Layer.NVLINK,
    title="fabric state of GPUs behind NVSwitch",
    right="Completed, with status success and no problem in the health mask; the fabric manager has not failed, and before Hopper it "
    "is active",
    why="Until the fabric manager has configured the NVSwitches, CUDA fails with error 802, system not yet initialized. Each GPU by "
    "itself looks healthy: one site took 20 days to notice that its fabric manager was down.",
    fix="systemctl start nvidia-fabricmanager; journalctl -u nvidia-fabricmanager; its version must match the driver",
    stays="systemctl enable nvidia-fabricmanager starts it at each boot",
    reads=("nvmlDeviceGetGpuFabricInfoV", "systemctl show nvidia-fabricmanager"),
    sources=("Fabric Manager user guide", "nvml.h, nvmlGpuFabricInfo_t"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU behind NVSwitch, or the service if the GPUs do not report it."""
    gpus, missing = switched(machine)
    if missing:
        yield missing
    mute = [gpu for gpu in gpus if gpu.fabric is None or gpu.fabric.state == NOT_SUPPORTED]
    if mute:
        yield _service(machine, ", ".join(gpu.label for gpu in mute))
    elif gpus and (stopped := _stopped(machine)):
        yield stopped
    for gpu in gpus:
        if gpu.fabric and gpu not in mute:
            yield _judge(gpu, gpu.fabric)


def _judge(gpu: GpuHealth, fabric: Fabric) -> Found:
    state = STATES.get(fabric.state, str(fabric.state))
    evidence = Evidence(f"nvmlDeviceGetGpuFabricInfoV, {gpu.label}", f"{state}, status {fabric.status}", "Completed, status 0")
    fix = OUTSIDE if gpu.name.startswith(RACK) or fabric.cluster else ROW.fix
    if fabric.state != COMPLETED:
        return failed(gpu.label, f"fabric state {state}: CUDA fails with error 802", evidence, fix=fix)
    if fabric.status != SUCCESS:
        return failed(gpu.label, f"the GPU could not join its fabric: status {fabric.status}", evidence, fix=fix)
    problems = [text for shift, text in HEALTH.items() if fabric.health_mask >> shift & 3 == TRUE]
    if problems:
        seen = Evidence(f"health mask, {gpu.label}", f"{fabric.health_mask:#x}", "no problem")
        return warned(gpu.label, f"fabric state {state}, but {', '.join(problems)}", evidence, seen, fix=fix)
    return passed(gpu.label, f"fabric state {state}", evidence)


def _stopped(machine: Machine) -> Found | None:
    """The finding if the service failed after the GPUs joined. One that is inactive may run elsewhere, such as in a container."""
    state = states(machine.call("nvidia_services", services).text or "").get(FABRIC_MANAGER, "")
    if state != FAILED:
        return None
    evidence = Evidence(f"systemctl show {FABRIC_MANAGER}", state, "active")
    return failed("", "the fabric manager failed after the GPUs joined their fabric: no new job can start on them", evidence, fix=ROW.fix)


def _service(machine: Machine, named: str) -> Found:
    reading = machine.call("nvidia_services", services)
    state = states(reading.text or "").get(FABRIC_MANAGER, "")
    evidence = Evidence(f"systemctl show {FABRIC_MANAGER}", state or reading.reason, "active")
    if state == "active":
        return passed("", f"the fabric manager is active; the driver reports no fabric state for {named}", evidence)
    if state in ("", ABSENT) or machine.hypervisor or confined(machine):  # it can run in a container of NVIDIA's GPU operator
        message = f"the driver reports no fabric state for {named}, and the fabric manager is not visible here"
        return unanswered("", message, reading.reason or "it has no such service", evidence)
    return failed("", f"the fabric manager is {state}: CUDA fails with error 802", evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
