"""What the driver asks to do with a GPU."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed
from busbw.check.gpu.each import each, said
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

# nvmlDeviceGpuRecoveryAction_t: what each asks for, and the steps.
RESET = "nvidia-smi -i {gpu} --gpu-reset"
ACTIONS = {
    1: ("a reset", f"drain the host; {RESET}"),
    2: ("a reboot of the host", "drain the host and reboot it"),
    3: (
        "an end of the traffic between GPUs",
        f"drain the host, and end all programs that use NVLink; busbw check --only gpu-recovery-action then shows the next step; often "
        f"{RESET}",
    ),
    4: ("a reset once its work has ended: it runs with reduced capacity", f"start no new job; when the running ones have ended: {RESET}"),
    5: ("a recovery of its IMEX domain", "drain all hosts of the NVLink domain, then on each: systemctl restart nvidia-imex"),
    6: ("a reset of its PCIe bus", "drain the host; reset the bus as nvidia-smi -h of this driver describes, or reboot the host"),
    7: ("a reboot of the whole system", "drain the host and its chassis, and power it off and on"),
}
ASK = "drain the host; nvidia-smi -q -i {gpu} | grep -i 'recovery action'"

ROW = CheckRow(
    id="BW260",
    name="gpu-recovery-action",
    layer=Layer.GPU,
    title="recovery action that the driver asks for",
    right="none",
    why="The driver asks for it after a fault that it could not clear, as with Xid 154. Until then new programs on the GPU fail, or it "
    "has less memory or bandwidth.",
    fix=f"drain the host; {RESET} for action 1, a reboot for action 2; each action has its own steps",
    stays="until the next fault; if it comes back, run dcgmi diag -r 3 and replace the GPU",
    reads=("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",),
    sources=("nvml.h, nvmlDeviceGpuRecoveryAction_t", "NVIDIA GPU memory error management, recovery action flag"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    action = gpu.recovery_action
    if action is None:
        return not_offered(gpu.label, "its driver does not report a recovery action; drivers from 570 on do")
    evidence = said(gpu, "FieldValues, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", action, "0: none")
    if not action:
        return passed(gpu.label, "the driver asks for no recovery", evidence)
    what, steps = ACTIONS.get(action, (f"action {action}, which busbw does not know", ASK))
    return failed(gpu.label, f"the driver asks for {what}", evidence, fix=filled(steps, gpu=gpu.index))


CHECK = Check(ROW, look)
