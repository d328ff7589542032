"""Variables that override NCCL's choice of algorithm, protocol and tuning."""

from busbw.check.base import failed, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import (
    REMOVE_VARIABLE,
    VARIABLE_SOURCES,
    NcclSetting,
    settings,
    variable,
)
from busbw.check.nvlink.fabric import switched
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer, Verdict
from busbw.core.sizes import parse_int

PROTO_VARIABLE = "NCCL_PROTO"

PROTO = CheckRow(
    id="BW170",
    name="nccl-proto",
    layer=Layer.NCCL,
    title=f"{PROTO_VARIABLE} in the environment",
    right="not set: NCCL chooses LL, LL128 or Simple by size, and knows where LL128 is safe",
    why=(
        "LL128 corrupts data on platforms where NCCL does not enable it. LL reaches at most half "
        "of the bandwidth. Simple adds latency to small messages."
    ),
    fix=f"unset {PROTO_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL user guide, NCCL_PROTO",),
)
ALGO_VARIABLE = "NCCL_ALGO"
ALGORITHMS = {"RING", "TREE", "COLLNET", "COLLNETCHAIN", "COLLNETDIRECT", "NVLS", "NVLSTREE", "PAT"}
NVLS_VARIABLE = "NCCL_NVLS_ENABLE"
FIRST_SM = 90  # Hopper, whose NVSwitches reduce
COLLNET_VARIABLE, PLUGIN_VARIABLE = "NCCL_COLLNET_ENABLE", "NCCL_NET_PLUGIN"


@variable(PROTO, PROTO_VARIABLE)
def check_proto(machine: Machine, setting: NcclSetting) -> Finding:
    lists = [part.rpartition(":")[2] for part in setting.value.upper().split(";")]
    # A list that excludes begins with ^.
    forced = any("LL128" in names.split(",") for names in lists)
    effect = "overrides NCCL's choice of protocol"
    if forced:
        effect = "forces LL128, which can corrupt data where NCCL would not use it"
    return warned("", f"{setting.text} {effect}", setting.evidence("not set"), fix=setting.unset)


ALGO = CheckRow(
    id="BW171",
    name="nccl-algo",
    layer=Layer.NCCL,
    title=f"{ALGO_VARIABLE} in the environment",
    right="not set: NCCL chooses by size and number of ranks",
    why=(
        "A value left over from a test applies to all sizes, and excludes NVLink SHARP unless it"
        " names NVLS. NCCL 2.24 and newer fail if the named algorithm does not support a"
        " collective, because they no longer fall back to Ring. They also fail on an unknown word."
    ),
    fix=f"unset {ALGO_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL user guide, NCCL_ALGO",),
)


@variable(ALGO, ALGO_VARIABLE)
def check_algo(machine: Machine, setting: NcclSetting) -> Finding:
    lists = [part.rpartition(":")[2].removeprefix("^") for part in setting.value.upper().split(";")]
    strange = sorted(
        {word for names in lists for word in names.split(",") if word and word not in ALGORITHMS}
    )
    if strange:
        message = f"{setting.text}: NCCL has no algorithm {', '.join(strange)}"
        return failed("", message, setting.evidence("not set"), fix=setting.unset)
    return warned(
        "",
        f"{setting.text} overrides NCCL's choice of algorithm",
        setting.evidence("not set"),
        fix=setting.unset,
    )


NVLS = CheckRow(
    id="BW179",
    name="nccl-nvls",
    layer=Layer.NCCL,
    title=f"{NVLS_VARIABLE} on GPUs with NVLink SHARP",
    right="not set, or not 0, with two or more GPUs of Hopper or later behind NVSwitch",
    why=(
        "With NVLink SHARP the switches reduce, and each byte crosses a link once. Without it "
        "the busbw of all_reduce on 8 H100 falls from 476 GB/s to 360 to 369. On 2x8 H100 with 400 "
        "GB/s of network it reached 465 GB/s; Ring cannot exceed 400 and Tree 422."
    ),
    fix=f"unset {NVLS_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(
        *VARIABLE_SOURCES,
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
    ),
    sources=("NCCL user guide, NCCL_NVLS_ENABLE", "NCCL src/transport/nvls.cc"),
)


@variable(NVLS, NVLS_VARIABLE)
def check_nvls(machine: Machine, setting: NcclSetting) -> Finding:
    if parse_int(setting.value):
        return passed("", f"{setting.text} leaves NVLink SHARP on", setting.evidence())
    gpus, missing = switched(machine)
    if missing and missing.verdict is Verdict.SKIP:
        return passed(
            "",
            f"{setting.text}, and there is no NVLink SHARP: {missing.message}",
            setting.evidence(),
        )
    if len(gpus) == 1 or any((gpu.sm or FIRST_SM) < FIRST_SM for gpu in gpus):
        gpu_evidence = Evidence("NVML", f"{len(gpus)} x {gpus[0].name}")
        return passed(
            "",
            f"{setting.text}, and these GPUs have no NVLink SHARP",
            setting.evidence(),
            gpu_evidence,
        )
    return warned(
        "", f"{setting.text} disables NVLink SHARP", setting.evidence("not set"), fix=setting.unset
    )


# Variables with their defaults; '' if NCCL computes the default.
TUNING_DEFAULTS = {
    "NCCL_MIN_NCHANNELS": "",
    "NCCL_MAX_NCHANNELS": "",
    "NCCL_MIN_CTAS": "",
    "NCCL_MAX_CTAS": "",
    "NCCL_MIN_NRINGS": "",
    "NCCL_MAX_NRINGS": "",
    "NCCL_MIN_P2P_NCHANNELS": "",
    "NCCL_MAX_P2P_NCHANNELS": "",
    "NCCL_NCHANNELS_PER_NET_PEER": "",
    "NCCL_NTHREADS": "",
    "NCCL_BUFFSIZE": "4194304",
    "NCCL_LL_BUFFSIZE": "",
    "NCCL_LL128_BUFFSIZE": "",
    "NCCL_P2P_NET_CHUNKSIZE": "131072",
    "NCCL_NET_SHARED_BUFFERS": "1",
    "NCCL_NET_SHARED_COMMS": "1",
    "NCCL_NVB_DISABLE": "0",
    "NCCL_PXN_DISABLE": "0",
    "NCCL_P2P_DIRECT_DISABLE": "0",
    "NCCL_P2P_PXN_LEVEL": "2",
    "NCCL_DMABUF_ENABLE": "1",
    "NCCL_CHECK_POINTERS": "0",
    "NCCL_LAUNCH_MODE": "PARALLEL",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "0",
    "NCCL_IB_PCI_RELAXED_ORDERING": "2",
    "NCCL_IB_RETRY_CNT": "7",
}

TUNING = CheckRow(
    id="BW181",
    name="nccl-tuning",
    layer=Layer.NCCL,
    title="channels, buffers and other values left over from experiments",
    right="none set, or set to the default",
    why=(
        "Such a value suits the machine, size and NCCL version that it was found with. Channels "
        "use GPU blocks, buffer sizes must be the same on all ranks, and new NCCL versions behave "
        "differently."
    ),
    fix="unset {variable}",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL user guide, environment variables, debugging",),
)


@variable(TUNING, *TUNING_DEFAULTS)
def check_tuning(machine: Machine, setting: NcclSetting) -> Finding:
    default = TUNING_DEFAULTS[setting.name]
    if default and setting.value.upper() == default:
        return passed(setting.name, f"{setting.text} is the default", setting.evidence())
    expected = f"not set, or {default}" if default else "not set"
    return warned(
        setting.name,
        f"{setting.text} changes performance: keep it only if a measurement shows its use",
        setting.evidence(expected),
        fix=setting.unset,
    )


COLLNET = CheckRow(
    id="BW189",
    name="nccl-collnet",
    layer=Layer.NCCL,
    title=f"{COLLNET_VARIABLE} in the environment",
    right="not set, or 1 on InfiniBand with a network plugin that offers SHARP",
    why=(
        "NCCL does in-network reductions only through a plugin. Without one the variable does "
        "nothing, and a measurement is mistaken for one of SHARP."
    ),
    fix=f"unset {COLLNET_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, "/sys/class/infiniband/*/ports/*/link_layer"),
    sources=("NCCL user guide, NCCL_COLLNET_ENABLE",),
)


@variable(COLLNET, COLLNET_VARIABLE)
def check_collnet(machine: Machine, setting: NcclSetting) -> Finding:
    if parse_int(setting.value) == 0:
        return passed("", f"{setting.text} is the default", setting.evidence())
    plugin = settings(machine).get(PLUGIN_VARIABLE)
    if plugin and plugin.value.lower() == "none":
        message = f"{setting.text}, but {plugin.text} disables the plugin that it needs"
        return warned(
            "",
            message,
            setting.evidence(),
            plugin.evidence("a plugin with SHARP"),
            fix=plugin.unset,
        )
    if machine.ports and all(port.roce for port in machine.ports):
        layers = Evidence("/sys/class/infiniband/*/ports/*/link_layer", "Ethernet", "InfiniBand")
        return warned(
            "",
            f"{setting.text}, but SHARP needs InfiniBand, and all ports are Ethernet",
            setting.evidence(),
            layers,
            fix=setting.unset,
        )
    return passed("", f"{setting.text} uses SHARP if the plugin offers it", setting.evidence())
