"""NVLink SHARP: reductions in the NVSwitches."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, passed, skipped, unknown, warned
from busbw.check.machine import Machine
from busbw.check.nvlink.linked import switched
from busbw.core.checking import CheckRow, Evidence, Found, Layer

VARIABLE = "NCCL_NVLS_ENABLE"
HOPPER = 90  # the first compute capability with NVLS

ROW = CheckRow(
    id="BW036",
    name="nvlink-nvls",
    layer=Layer.NVLINK,
    title="NVLink SHARP (NVLS) switched off",
    right=f"{VARIABLE} is not 0 on Hopper or later behind NVSwitch",
    why="NVSwitch adds up the data of all GPUs itself. Without it all_reduce on 8 H100 falls from a busbw of 476 GB/s to 360 to 369.",
    fix=f"unset {VARIABLE}",
    stays="remove it from the job script, /etc/nccl.conf and ~/.nccl.conf",
    reads=("environment", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetNvLinkRemoteDeviceType"),
    sources=("NCCL user guide, NCCL_NVLS_ENABLE", "NCCL src/transport/nvls.cc"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The hardware, then the variable. Whether CUDA can use multicast is told only by a run."""
    gpus, missing = switched(machine)
    if missing:
        yield missing
    elif any(gpu.sm is None for gpu in gpus):
        yield unknown("", "NVML does not tell the compute capability")
    elif any((gpu.sm or 0) < HOPPER for gpu in gpus):
        yield skipped(f"{gpus[0].name} has no NVLS")
    elif len(gpus) < 2:
        yield skipped("there is no second GPU behind NVSwitch")
    elif machine.environment is None:
        yield no_environment()
    else:
        value = machine.environment.get(VARIABLE)
        evidence = Evidence(f"${VARIABLE}", value or "not set", "not 0")
        if value == "0":
            yield warned("", f"{VARIABLE}=0 switches reductions in NVSwitch off", evidence, fix=ROW.fix)
        else:
            yield passed("", f"{VARIABLE} is {value or 'not set'}: NCCL may use NVLS", evidence)


CHECK = Check(ROW, look)
