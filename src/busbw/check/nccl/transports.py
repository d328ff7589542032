"""Variables that turn off direct transfers: GPUDirect RDMA, peer to peer, shared memory."""

from busbw.check.base import passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import REMOVE_VARIABLE, VARIABLE_SOURCES, NcclSetting, variable
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import parse_int

GDR_VARIABLE, OLD_GDR_VARIABLE = "NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL"
LEGACY_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")  # by their old numbers; larger numbers are SYS
LEVELS = (*LEGACY_LEVELS, "NVL", "NVB", "C2C", "P2C", "PXN")

NET_GDR_LEVEL = CheckRow(
    id="BW168",
    name="nccl-net-gdr-level",
    layer=Layer.NCCL,
    title="maximum distance for GPUDirect RDMA",
    right="not set, or a word such as PXB",
    why=(
        "Numbers refer to an old list and are discouraged: 2 is PXB, which is the default on x86 "
        "anyway. LOC disables GPUDirect RDMA. NCCL ignores unknown words, including lowercase ones."
    ),
    fix=f"unset {GDR_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL user guide, NCCL_NET_GDR_LEVEL",),
)
P2P_VARIABLE, LEVEL_VARIABLE = "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"
SHM_VARIABLE = "NCCL_SHM_DISABLE"


@variable(NET_GDR_LEVEL, GDR_VARIABLE, OLD_GDR_VARIABLE)
def check_net_gdr_level(machine: Machine, setting: NcclSetting) -> Finding:
    value = setting.value
    if value in ("0", LEGACY_LEVELS[0]):
        return warned(
            "",
            f"{setting.text} disables GPUDirect RDMA",
            setting.evidence("not set"),
            fix=setting.unset,
        )
    if value.isdecimal():
        word = LEGACY_LEVELS[min(int(value), len(LEGACY_LEVELS) - 1)]
        message = f"{setting.text} is a number of the old list, where it means {word}"
        return warned(
            "",
            message,
            setting.evidence("a word"),
            fix=NcclSetting(GDR_VARIABLE, word, setting.file).change_to(word),
        )
    if value not in LEVELS:
        upper = value.upper()
        message = f"{setting.text} is not an NCCL path type, and has no effect"
        fix = setting.change_to(upper) if upper in LEVELS else setting.unset
        return warned("", message, setting.evidence(", ".join(LEGACY_LEVELS)), fix=fix)
    if setting.name == OLD_GDR_VARIABLE:
        return warned(
            "",
            f"{OLD_GDR_VARIABLE} was renamed in NCCL 2.4",
            setting.evidence(GDR_VARIABLE),
            fix=setting.unset,
        )
    return passed("", f"{setting.text} uses GPUDirect RDMA up to this distance", setting.evidence())


P2P_DISABLE = CheckRow(
    id="BW177",
    name="nccl-p2p-disable",
    layer=Layer.NCCL,
    title=f"{P2P_VARIABLE} and {LEVEL_VARIABLE}",
    right="not set",
    why=(
        "Without peer-to-peer transfers data goes through host memory instead of NVLink or PCIe."
        " Disabling them helps to find a fault, such as PCIe ACS that breaks peer-to-peer, but"
        " costs most of the bandwidth inside a host."
    ),
    fix=f"unset {P2P_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, "NVML"),
    sources=("NCCL user guide, NCCL_P2P_DISABLE and NCCL_P2P_LEVEL",),
)


@variable(P2P_DISABLE, P2P_VARIABLE, LEVEL_VARIABLE)
def check_p2p_disable(machine: Machine, setting: NcclSetting) -> Finding:
    gpus = machine.host.gpus
    links = []
    if gpus and gpus[0].nvlink:
        links.append(Evidence("NVML", f"{gpus[0].nvlink} NVLinks at each GPU"))
    if setting.name == LEVEL_VARIABLE:
        if not setting.value.isdigit() and setting.value not in LEVELS:
            message = f"{setting.text} is not an NCCL path type, and has no effect"
            return warned("", message, setting.evidence(", ".join(LEVELS)), fix=setting.unset)
        if setting.value not in ("LOC", "0"):
            return passed(
                "",
                f"{setting.text} sets the distance up to which GPUs access each other",
                setting.evidence(),
            )
    elif parse_int(setting.value) == 0:
        return passed("", f"{setting.text} is the default", setting.evidence())
    return warned(
        "",
        f"{setting.text}: GPUs of a host exchange data through its memory",
        setting.evidence("not set"),
        *links,
        fix=setting.unset,
    )


SHM_DISABLE = CheckRow(
    id="BW178",
    name="nccl-shm-disable",
    layer=Layer.NCCL,
    title=f"{SHM_VARIABLE} in the environment",
    right="not set, or 0",
    why=(
        "GPUs without direct access to each other then exchange data over the network, even "
        "inside a host. It is usually set to work around a small /dev/shm in containers."
    ),
    fix=f"unset {SHM_VARIABLE}, and in containers --shm-size=1g or --ipc=host",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL user guide, NCCL_SHM_DISABLE",),
)


@variable(SHM_DISABLE, SHM_VARIABLE)
def check_shm_disable(machine: Machine, setting: NcclSetting) -> Finding:
    if parse_int(setting.value) == 0:
        return passed("", f"{setting.text} is the default", setting.evidence())
    fix = setting.unset
    if machine.container:
        fix += "; start the container with --shm-size=1g or --ipc=host"
    message = f"{setting.text}: GPUs without direct access use the network inside a host"
    return warned("", message, setting.evidence("not set"), fix=fix)
