"""Rules of the kernel log on GPUs and the fabric manager."""

from busbw.core.finding import Layer, Verdict
from busbw.core.kernel_rule import (
    DAY_S,
    GPUD,
    NVSENTINEL,
    REPAIRED,
    KernelRule,
    Sign,
    Texts,
    line,
    rule,
)

FAIL, WARN = Verdict.FAIL, Verdict.WARN
DRIVER = "open-gpu-kernel-modules"

# Only the modules that are loaded, and those that use others first: lsmod begins with the newest.
RELOAD_DRIVER = (
    "stop nvidia-persistenced, nvidia-fabricmanager and nvidia-dcgm; rmmod $(lsmod | grep -oE"
    " '^(nvidia|nv_peer_mem|gdrdrv)[a-z_]*'); modprobe nvidia"
)
_GONE = "a GPU that left the bus does not come back by itself"
_UNLOADED = line(r"nvidia-nvlink: (?:Nvlink Core is being initialized|Unregistered Nvlink Core)")
_NOT_STARTED = "the GPU cannot be used until the driver starts it"

FELL_OFF = rule(
    Texts(
        "BW240",
        "gpu-fell-off-bus",
        Layer.GPU,
        "GPUs that fell off the bus without an Xid",
        "The driver finds a GPU that does not answer on PCIe. While it starts it logs this without"
        " Xid 79.",
        "drain the host first; reboot it; if it comes back, reseat or replace the GPU, its power"
        " cable or riser",
        REPAIRED,
        (f"{DRIVER}, osapi.c and osinit.c", NVSENTINEL, GPUD),
    ),
    Sign(
        line(r"NVRM: The NVIDIA GPU <bdf>.*fallen off the bus"),
        FAIL,
        "does not answer on PCIe",
        _GONE,
    ),
    Sign(
        line(r"NVRM: GPU <bdf>: GPU has fallen off the bus"), FAIL, "has fallen off the bus", _GONE
    ),
    # journald and dmesg break the first form into three lines; the address is in another one.
    Sign(
        line(r"NVRM: fallen off the bus and is not responding"),
        FAIL,
        "a GPU does not answer on PCIe",
        _GONE,
    ),
    covered_by_xid=79,
)

GPU_INIT = rule(
    Texts(
        "BW241",
        "gpu-driver-start",
        Layer.GPU,
        "GPUs that the driver could not start",
        "The driver does not start the GPU, so that jobs miss it.",
        f"drain the host first; {RELOAD_DRIVER}; if it fails again, reboot; then check the power"
        " cable, the slot and the versions of driver and firmware",
        REPAIRED,
        (f"{DRIVER}, nv.c and osinit.c",),
    ),
    Sign(
        line(r"NVRM: GPU <bdf>: (?:rm_init_adapter|RmInitAdapter) failed"),
        FAIL,
        "the driver could not start it",
        _NOT_STARTED,
        ends=_UNLOADED,
    ),
    Sign(
        line(r"NVRM: GPU <bdf>: GPU does not have the necessary power cables"),
        FAIL,
        "its power cable is not connected",
        _NOT_STARTED,
        ends=_UNLOADED,
    ),
    Sign(
        line(r"NVRM: rm_init_adapter\((?P<minor>\d+)\) failed"),
        FAIL,
        "the driver could not start the GPU of minor number {minor}",
        _NOT_STARTED,
        ends=_UNLOADED,
    ),
    Sign(
        line(r"NVRM: RmInitAdapter failed"),
        FAIL,
        "the driver could not start a GPU",
        _NOT_STARTED,
        ends=_UNLOADED,
    ),
    Sign(
        line(r"NVRM: The NVIDIA probe routine failed for (?P<count>\d+) device"),
        FAIL,
        "the driver could not start {count} GPU(s)",
        _NOT_STARTED,
        ends=_UNLOADED,
    ),
    Sign(
        line(r"nvidia: probe of <bdf> failed"),
        FAIL,
        "the driver could not start it",
        _NOT_STARTED,
        ends=_UNLOADED,
    ),
    Sign(
        line(r"nvidia <bdf>: probe with driver nvidia failed"),
        FAIL,
        "the driver could not start it",
        _NOT_STARTED,
        ends=_UNLOADED,
    ),
    Sign(
        line(r"NVRM: None of the NVIDIA (?:devices|graphics adapters) were initialized"),
        FAIL,
        "the driver started no GPU",
        _NOT_STARTED,
        ends=_UNLOADED,
    ),
    Sign(
        line(r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid"),
        FAIL,
        "firmware gave a GPU no usable memory window: enable Above 4G Decoding",
        _NOT_STARTED,
        ends=_UNLOADED,
    ),
)

FABRIC_MANAGER = rule(
    Texts(
        "BW242",
        "fabric-manager-failed",
        Layer.NVLINK,
        "failures of the fabric manager in the log",
        "Without the fabric manager, GPUs behind NVSwitch do not start CUDA (error 802).",
        "journalctl -u nvidia-fabricmanager -b; install the nvidia-fabricmanager that has the"
        " version of the driver; systemctl restart nvidia-fabricmanager",
        "systemctl enable nvidia-fabricmanager",
        ("NVSentinel issue 883", "systemd logs to the kernel log where journald does not run"),
    ),
    Sign(
        line(
            r"nvidia-fabricmanager(?:\.service)?: (?:Failed with result|Main process exited,"
            r" .*status=[1-9]|Start request repeated)"
        ),
        FAIL,
        "the service failed",
        "a service that failed stays down until it is started",
        ends=line(r"Started .*(?:nvidia-fabricmanager|NVIDIA fabric manager)"),
    ),
)

PEERMEM = rule(
    Texts(
        "BW268",
        "peermem-errors",
        Layer.GPU,
        "errors of nvidia-peermem",
        "The module that lets RDMA devices reach GPU memory met memory that was released already."
        " It comes before failed registrations, and is fixed in drivers from 560 on.",
        "update the NVIDIA driver to 560 or newer; or rmmod nvidia_peermem, where the open driver"
        " and Linux 5.12 or newer export memory as dma-buf",
        "a new driver stays",
        ("Mellanox/nv_peer_memory issue 120", GPUD),
    ),
    Sign(
        line(
            r"nv(?:idia-peermem|_mem|_peer_mem)\S* nv_get_p2p_free_callback:\d+ .*(?P<what>invalid"
            r" (?:context|page_table|dma_mapping))"
        ),
        WARN,
        "memory was released twice ({what})",
        "the module goes on",
        DAY_S,
    ),
)

GPU_RULES: tuple[KernelRule, ...] = (FELL_OFF, GPU_INIT, FABRIC_MANAGER, PEERMEM)
