"""GPUs of one machine, compared with each other: model and peer access."""

from collections import Counter
from collections.abc import Callable, Iterator

from busbw.check.base import check, not_offered, passed, skipped, unknown, warned
from busbw.check.gpu.per_gpu import WITHHELD, no_gpus
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted, format_size
from busbw.host.gpu_health import GpuHealth, NvmlGpus
from busbw.host.nvml_health import read_health

TRAITS: tuple[tuple[str, str, Callable[[GpuHealth], str]], ...] = (
    ("model", "nvmlDeviceGetName", lambda gpu: gpu.name),
    ("VBIOS", "nvmlDeviceGetVbiosVersion", lambda gpu: gpu.vbios or ""),
    (
        "memory",
        "nvmlDeviceGetMemoryInfo",
        lambda gpu: format_size(gpu.memory_bytes) if gpu.memory_bytes else "",
    ),
)
LEAVE_GPU_OUT = "leave GPU {gpu} out: CUDA_VISIBLE_DEVICES"

SAME_MODEL = CheckRow(
    id="BW019",
    name="gpu-same-model",
    layer=Layer.GPU,
    title="identical GPUs in one machine",
    right="all GPUs have the same model, VBIOS and memory size",
    why=(
        "A collective runs at the pace of its slowest GPU. A replacement GPU can have an older "
        "VBIOS, with different clock, power or NVLink settings."
    ),
    fix=(
        "ask the server vendor for VBIOS {common} for GPU {gpu}, or leave it out:"
        " CUDA_VISIBLE_DEVICES"
    ),
    stays="yes: the VBIOS is stored in the GPU",
    reads=tuple(function for _, function, _ in TRAITS),
    sources=("Meta GPU cluster monitoring, check_nvidia_smi",),
)
STATUS_OK, STATUS_INCAPABLE, STATUS_UNKNOWN = 0, 2, 6
MAX_NAMED_PAIRS = 4  # pairs in a message
# nvml.h, nvmlGpuP2PStatus_t
STATUS = {
    1: "chipset not supported",
    3: "not supported across these PCIe roots",
    4: "disabled by a setting of the driver",
    5: "not supported",
}


@check(SAME_MODEL)
def check_same_model(machine: Machine) -> Iterator[Finding]:
    """A finding for each GPU with another model, VBIOS or memory than most."""
    gpus = read_health(machine)
    readable = [gpu for gpu in gpus.gpus if not gpu.error]
    missing = no_gpus(machine, gpus)
    if missing:
        yield missing
    elif len(readable) < 2:
        yield skipped("there is no second GPU to compare with")
    else:
        differing: list[Finding] = []
        for trait in TRAITS:
            differing += _judge_trait(readable, *trait)
        yield from differing
        unreported = [gpu.label for gpu in gpus.gpus if gpu.error or not _reports_all(gpu)]
        if unreported:
            labels = ", ".join(unreported)
            yield _unreported(gpus, f"NVML does not report model, VBIOS and memory of {labels}")
        elif not differing:
            first, number = readable[0], counted(len(readable), "identical GPU")
            yield passed("", f"{number}: {first.name}, VBIOS {first.vbios}")


def _unreported(gpus: NvmlGpus, message: str) -> Finding:
    """Unknown if NVML cannot read a GPU; else, or if it only withholds some, not offered."""
    unreadable = any(gpu.error and WITHHELD not in gpu.error for gpu in gpus.gpus)
    make = unknown if unreadable else not_offered
    return make("", message)


def _reports_all(gpu: GpuHealth) -> bool:
    return all(trait(gpu) for _, _, trait in TRAITS)


def _judge_trait(
    gpus: list[GpuHealth], trait_name: str, function: str, trait: Callable[[GpuHealth], str]
) -> Iterator[Finding]:
    known = [(gpu, trait(gpu)) for gpu in gpus if trait(gpu)]
    common = Counter(value for _, value in known).most_common(1)[0][0] if known else ""
    for gpu, value in known:
        if value != common:
            evidence = Evidence(f"{function}, {gpu.label}", value, common)
            fix = filled(
                SAME_MODEL.fix if trait_name == "VBIOS" else LEAVE_GPU_OUT,
                common=common,
                gpu=gpu.index,
            )
            yield warned(
                gpu.label,
                f"its {trait_name} is {value}; most GPUs have {common}",
                evidence,
                fix=fix,
            )


P2P = CheckRow(
    id="BW021",
    name="gpu-p2p",
    layer=Layer.GPU,
    title="peer access between GPUs",
    right="every GPU can read the memory of every other one",
    why=(
        "Without peer access NCCL copies through host memory, which crosses PCIe twice. The "
        "usual cause is an IOMMU, ACS, a virtual machine or a driver setting."
    ),
    fix=(
        "nvidia-smi topo -p2p r; busbw check explain pcie-acs; on bare metal, drain the host, boot"
        " with iommu=pt and turn ACS off"
    ),
    stays=(
        "iommu=pt in the boot loader's configuration stays; ACS that setpci turned off is on again"
        " after a reboot"
    ),
    reads=("nvmlDeviceGetP2PStatus",),
    sources=("NCCL user guide, troubleshooting: GPU direct",),
)


@check(P2P)
def check_p2p(machine: Machine) -> Iterator[Finding]:
    """One finding for all pairs of GPUs with the same status."""
    gpus = read_health(machine)
    pairs = len(gpus.gpus) * (len(gpus.gpus) - 1) // 2
    missing = no_gpus(machine, gpus)
    if missing:
        yield missing
    elif len(gpus.gpus) < 2:
        yield skipped("there is no second GPU")
    elif len(gpus.peers) < pairs:
        missing_pairs = pairs - len(gpus.peers)
        message = f"NVML does not report peer access for {missing_pairs} of {pairs} pairs"
        yield _unreported(gpus, message)
    elif all(status == STATUS_OK for _, _, status in gpus.peers):
        yield passed("", f"peer access in all {counted(len(gpus.peers), 'pair')} of GPUs")
    for status in sorted({status for _, _, status in gpus.peers} - {STATUS_OK}):
        alike = [
            f"GPU {first}-{second}"
            for first, second, pair_status in gpus.peers
            if pair_status == status
        ]
        named = ", ".join(alike[:MAX_NAMED_PAIRS])
        if len(alike) > MAX_NAMED_PAIRS:
            named += f" and {len(alike) - MAX_NAMED_PAIRS} more"
        evidence = Evidence(
            "nvmlDeviceGetP2PStatus", f"{status}: {STATUS.get(status, 'unknown')}", "0: OK"
        )
        if status == STATUS_UNKNOWN:
            message = f"NVML does not know whether there is peer access: {named}"
            yield not_offered("", message, evidence)
        elif status == STATUS_INCAPABLE:
            yield skipped(f"these GPUs do not support peer access: {named}")
        else:
            yield warned(
                "",
                f"no peer access, {STATUS.get(status, f'status {status}')}: {named}",
                evidence,
                fix=P2P.fix,
            )
