"""Pairs of GPUs that cannot read each other's memory."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unknown, warned
from busbw.check.gpu.each import WITHHELD, no_gpus
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.nvml_health import read_health

OK, INCAPABLE, UNKNOWN = 0, 2, 6
NAMED = 4  # pairs in a message
# nvml.h, nvmlGpuP2PStatus_t
STATUS = {
    1: "chipset not supported",
    3: "not supported across these PCIe roots",
    4: "disabled by a setting of the driver",
    5: "not supported",
}

ROW = CheckRow(
    id="BW021",
    name="gpu-p2p",
    layer=Layer.GPU,
    title="peer access between GPUs",
    right="every GPU can read the memory of every other one",
    why="Without peer access NCCL copies through host memory, which crosses PCIe twice. The usual cause is an IOMMU, ACS, a virtual "
    "machine or a driver setting.",
    fix="nvidia-smi topo -p2p r; on bare metal, drain the host, boot with iommu=pt and turn ACS off (busbw explain pcie-acs)",
    stays="iommu=pt in the boot loader's configuration stays; ACS that setpci turned off is on again after a reboot",
    reads=("nvmlDeviceGetP2PStatus",),
    sources=("NCCL user guide, troubleshooting: GPU direct",),
)


def look(machine: Machine) -> Iterator[Found]:
    """All pairs, grouped by what NVML reports."""
    gpus = read_health(machine)
    if missing := no_gpus(machine, gpus):
        yield missing
    elif len(gpus.gpus) < 2:
        yield skipped("there is no second GPU")
    elif len(gpus.peers) < (pairs := len(gpus.gpus) * (len(gpus.gpus) - 1) // 2):
        lost = any(gpu.error and WITHHELD not in gpu.error for gpu in gpus.gpus)
        yield (unknown if lost else not_offered)("", f"NVML does not report peer access for {pairs - len(gpus.peers)} of {pairs} pairs")
    elif all(status == OK for _, _, status in gpus.peers):
        yield passed("", f"peer access in all {counted(len(gpus.peers), 'pair')} of GPUs")
    for status in sorted({status for _, _, status in gpus.peers} - {OK}):
        alike = [f"GPU {one}-{other}" for one, other, said in gpus.peers if said == status]
        named = ", ".join(alike[:NAMED]) + (f" and {len(alike) - NAMED} more" if len(alike) > NAMED else "")
        evidence = Evidence("nvmlDeviceGetP2PStatus", f"{status}: {STATUS.get(status, 'unknown')}", "0: OK")
        if status == UNKNOWN:
            yield not_offered("", f"NVML does not know whether there is peer access: {named}", evidence)
        elif status == INCAPABLE:
            yield skipped(f"these GPUs do not support peer access: {named}")
        else:
            yield warned("", f"no peer access, {STATUS.get(status, f'status {status}')}: {named}", evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
