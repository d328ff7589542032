"""NVLinks that are down."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed, skipped, unknown
from busbw.check.gpu.each import no_gpus, unreadable
from busbw.check.machine import Machine
from busbw.check.nvlink.linked import bridged, expected
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu_health import GpuHealth
from busbw.host.nvml_health import read_health

ROW = CheckRow(
    id="BW030",
    name="nvlink-links",
    layer=Layer.NVLINK,
    title="active NVLinks of each GPU",
    right="all links of the model: V100 6, A100 12, H100, H200, H20, B200 and GB200 18, A800 and H800 8; bridged cards are not judged",
    why="A GPU with a link down sends more slowly, and all others wait for it in a collective. With all links down NCCL uses PCIe or the "
    "network.",
    fix="dmesg | grep -E 'Xid|SXid'; journalctl -u nvidia-fabricmanager; drain the host and reset GPU {gpu}; if the link stays down, "
    "reseat or replace the GPU",
    stays="a reset helps if the fault was transient",
    reads=("nvmlDeviceGetNvLinkState",),
    sources=(
        "data sheets of the GPUs: the table in busbw's model of hardware",
        "NVIDIA Health Validation, checks",
        "Azure node health checks, check_nvlink_status",
    ),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    gpus = read_health(machine)
    if missing := no_gpus(machine, gpus):
        yield missing
    for gpu in gpus.gpus:
        if gpu.error or gpu.links is None:
            yield unreadable(gpu, "links", "its links")
        else:
            yield _judge(gpu, alone=len(gpus.gpus) == 1, virtual=bool(machine.hypervisor))


def _judge(gpu: GpuHealth, *, alone: bool, virtual: bool) -> Found:
    row, active, down = expected(gpu), len(gpu.active), ", ".join(str(link.number) for link in gpu.links or () if not link.active)
    if not active and (row is None or alone):
        why = "no NVLink" if row is None else "no active NVLink, which is normal for a single GPU of a board"
        return skipped(f"{gpu.name}: {why}", gpu.label)
    seen = f"{active} active" + (f", inactive: {down}" if down else "")
    evidence = Evidence(f"nvmlDeviceGetNvLinkState, {gpu.label}", seen, f"{row.links} active: {row.source}" if row else "")
    if active >= row.links if row else not down:
        return passed(gpu.label, f"all {counted(active, 'NVLink')} are active", evidence)
    if row is None and bridged(gpu):
        return skipped(f"{gpu.name}: {counted(active, 'NVLink')} active; the number depends on its bridges", gpu.label)
    if row is None:
        message = f"{counted(active, 'NVLink')} active; busbw does not know how many a {gpu.name} should have"
        return unknown(gpu.label, message, evidence)
    if virtual and not gpu.switched:
        message = f"{active} of {row.links} NVLinks are active; others may lead to GPUs outside this virtual machine"
        return not_offered(gpu.label, message, evidence)
    if gpu.mig:
        return skipped(f"{active} of {row.links} NVLinks are active: MIG is on, which switches them off on A100", gpu.label)
    fix = filled(ROW.fix, gpu=gpu.index)
    if not active:
        return failed(gpu.label, f"none of its {row.links} NVLinks is active", evidence, fix=fix)
    return failed(gpu.label, f"{active} of {row.links} NVLinks are active", evidence, fix=fix)


CHECK = Check(ROW, look)
