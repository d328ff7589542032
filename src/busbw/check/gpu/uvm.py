"""The device through which CUDA manages memory."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed, skipped, warned
from busbw.check.gpu.each import in_wsl, no_gpus
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nvml_health import read_health

DEVICE = "nvidia-uvm"
PATH = f"/dev/{DEVICE}"

ROW = CheckRow(
    id="BW018",
    name="gpu-uvm",
    layer=Layer.GPU,
    title=f"device {PATH}",
    right="present",
    why=f"CUDA cannot start without {PATH}, and NCCL's first call fails. nvidia-smi works without it, so the GPUs look healthy.",
    fix="nvidia-modprobe -u -c=0",
    stays="lost at the next reboot; CUDA creates the device itself if nvidia-modprobe is installed; nvidia-persistenced loads the module",
    reads=("/dev", "/proc/modules"),
    sources=("NVIDIA driver README, nvidia-modprobe",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The device, which cannot be created later in a container."""
    names = machine.names("/dev")
    if missing := no_gpus(machine, read_health(machine)):
        yield missing
        return
    loaded = "nvidia_uvm" in machine.modules
    evidence = Evidence(PATH, "present" if DEVICE in names else "absent", "present")
    if not names:
        yield not_offered("", "/dev cannot be listed")
    elif in_wsl(machine):
        yield skipped("in WSL the driver of Windows serves the GPU, without this device")
    elif DEVICE in names:
        yield passed("", f"{PATH} is present", evidence)
    elif machine.container:
        fix = f"start the container with the NVIDIA container toolkit (docker run --gpus all), or with --device {PATH}"
        yield failed("", f"{PATH} is absent: CUDA cannot start, and cannot create it in a container", evidence, fix=fix)
    else:
        state = "the module nvidia_uvm is loaded" if loaded else "the module nvidia_uvm is not loaded"
        yield warned("", f"{PATH} is absent ({state}): CUDA starts only if it can create the device itself", evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
