"""Rules of the kernel log on GPUs, network devices and PCIe."""

from busbw.core.finding import Layer, Verdict
from busbw.core.kernel_rule import DAY_S, KernelRule, Sign, Texts, line, rule

FAIL, WARN = Verdict.FAIL, Verdict.WARN
REPAIRED = "a reset or reboot helps if the fault was transient; if it comes back, replace the part"
DRIVER = "open-gpu-kernel-modules"
MLX5 = "Linux, drivers/net/ethernet/mellanox/mlx5/core"
NVSENTINEL = "NVSentinel's syslog health monitor"
GPUD = "gpud's kernel log matchers"

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
        "drain the host first; stop nvidia-persistenced, nvidia-fabricmanager and nvidia-dcgm;"
        " modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia; if it fails"
        " again, reboot; then check the power cable, the slot and the versions of driver and"
        " firmware",
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

_RECOVERED = line(r"mlx5_core <bdf>\b.*health re[cv]overy succe")
_PROBED = line(r"mlx5_core <bdf>\b.*firmware version: ")
_DEAD = "firmware that stopped does not start by itself; the driver says so if it recovers"
NIC_HEALTH = rule(
    Texts(
        "BW243",
        "nic-firmware-health",
        Layer.NIC,
        "ConnectX firmware that stopped or reported an error",
        "The firmware does not answer the driver or reported an internal error. The port may look"
        " up and carry nothing.",
        "drain the host first; mlxfwreset -d {subject} reset; if it comes back, update the firmware"
        " or replace the adapter",
        REPAIRED,
        (f"{MLX5}/health.c", NVSENTINEL),
    ),
    Sign(
        line(r"mlx5_core <bdf>\b.*device's health compromised"),
        FAIL,
        "its firmware does not answer",
        _DEAD,
        ends=_RECOVERED,
    ),
    Sign(
        line(
            r"mlx5_core <bdf>\b.*(?:health recovery failed|health recovery flow aborted|Fatal error"
            r" \d+ detected)"
        ),
        FAIL,
        "its driver could not recover it",
        _DEAD,
        ends=_RECOVERED,
    ),
    Sign(
        line(r"mlx5_core <bdf>\b.*Health issue observed, (?P<issue>[^,]+), severity\([0-3]\)"),
        FAIL,
        "its firmware reports: {issue}",
        _DEAD,
        ends=_RECOVERED,
    ),
    Sign(
        line(r"mlx5_core <bdf>\b.*Health issue observed, (?P<issue>[^,]+), severity\([4-7]\)"),
        WARN,
        "its firmware reports: {issue}",
        "a warning or notice of the firmware is over",
        DAY_S,
    ),
    Sign(
        line(
            r"mlx5_core <bdf>\b.*(?P<issue>unrecoverable hardware error|firmware internal"
            r" error|irisc not responding)"
        ),
        FAIL,
        "its firmware reports: {issue}",
        _DEAD,
        ends=_RECOVERED,
    ),
)

NIC_COMMANDS = rule(
    Texts(
        "BW244",
        "nic-firmware-commands",
        Layer.NIC,
        "ConnectX commands and starts that failed",
        "A driver that cannot start the adapter, or whose commands time out, has no port or loses"
        " it soon.",
        "drain the host first; mlxfwreset -d {subject} reset, or reboot; mstflint -d {subject} q,"
        " and update the firmware if it is old",
        REPAIRED,
        (f"{MLX5}/cmd.c and main.c", NVSENTINEL),
    ),
    Sign(
        line(
            r"mlx5_core <bdf>\b.*(?:mlx5_(?:load|init)_one failed|probe_one.*"
            r" failed|pre-initializing state, aborting)"
        ),
        FAIL,
        "its driver did not start it",
        "the port is missing until the driver starts it",
        ends=_PROBED,
    ),
    Sign(
        line(r"mlx5_core: probe of <bdf> failed"),
        FAIL,
        "its driver did not start it",
        "the port is missing until the driver starts it",
        ends=_PROBED,
    ),
    Sign(
        line(r"mlx5_core <bdf>\b.*timeout\. Will cause a leak of a command resource"),
        FAIL,
        "its firmware did not answer a command",
        "the firmware has lost the command until it is reset",
        ends=_PROBED,
    ),
    Sign(
        line(
            r"mlx5_core <bdf>\b.*(?:No done completion|failed to allocate command entry|not ready,"
            r" aborting)"
        ),
        WARN,
        "its firmware did not answer a command in time",
        "later commands may have worked",
        DAY_S,
    ),
)

SLOT_POWER = rule(
    Texts(
        "BW245",
        "nic-slot-power",
        Layer.NIC,
        "PCIe slots that give an adapter too little power",
        "The slot offers less power than adapter and transceivers may draw. Ports with long-reach"
        " transceivers may stay down.",
        "raise the power limit of the slot in the BIOS, or move {subject} to a slot of 75 W;"
        " mlxconfig -d {subject} q | grep -i power",
        "it is set in the BIOS or the slot",
        (f"{MLX5}/events.c", NVSENTINEL, GPUD),
    ),
    Sign(
        line(
            r"(?:mlx5_core <bdf>\b.*)?Detected insufficient power on the PCIe slot"
            r" \((?P<power>\d+W)\)"
        ),
        WARN,
        "its slot offers only {power}",
        "the slot stays as it is",
    ),
)

MODULE_EVENTS = rule(
    Texts(
        "BW246",
        "nic-module-events",
        Layer.NIC,
        "errors of transceivers and temperature alarms of adapters",
        "A transceiver that is too hot, broken or not supported loses its link.",
        "check the air flow at {subject}; mlxlink -d {subject} -m; reseat or replace the"
        " transceiver or cable",
        "permanent: hardware",
        (f"{MLX5}/events.c", NVSENTINEL, GPUD),
    ),
    Sign(
        line(
            r"(?:mlx5_core <bdf>\b.*)?Port module event\[error\]: module (?P<module>\d+), Cable"
            r" error, (?P<issue>.+)"
        ),
        WARN,
        "module {module}: {issue}",
        "a new module event follows when it is pulled or works again",
        ends=line(r"mlx5_core <bdf>\b.*Port module event: module \d+, Cable (?:plugged|unplugged)"),
    ),
    Sign(
        line(r"mlx5_core <bdf>\b.*[Hh]igh temperature on sensors"),
        WARN,
        "a temperature sensor of the adapter is above its limit",
        "the driver repeats it while it lasts",
        DAY_S,
    ),
)

TX_TIMEOUT = rule(
    Texts(
        "BW247",
        "netdev-tx-timeout",
        Layer.NIC,
        "interfaces whose transmit queue stood still",
        "The interface sent nothing for seconds; the driver then reset the queue. Connections stall"
        " or break.",
        "ethtool -S {subject} | grep -i -E 'err|timeout|pause'; update driver and firmware; if it"
        " recurs, replace the adapter",
        REPAIRED,
        ("Linux, net/sched/sch_generic.c", NVSENTINEL),
    ),
    Sign(
        line(
            r"NETDEV WATCHDOG: <disk> \((?P<driver>[\w-]+)\): transmit queue (?P<queue>\d+)"
            r" timed out"
        ),
        WARN,
        "transmit queue {queue} stood still ({driver})",
        "the driver resets the queue",
        DAY_S,
    ),
    Sign(
        line(
            r"(?P<driver>[\w-]+) \S+ <disk>: NETDEV WATCHDOG: .*transmit queue (?P<queue>\d+)"
            r" timed out"
        ),
        WARN,
        "transmit queue {queue} stood still ({driver})",
        "the driver resets the queue",
        DAY_S,
    ),
)

_EFA_DEVICE = r"\binfiniband (?P<subject>(?:rdmap|efa_)\w*):.*"
_NO_ADMIN = (
    r"(?:didn't send any completion for admin cmd|Wait for completion \(polling\) timeout|Admin"
    r" queue is closed)"
)
_NOT_READY = r"(?:Reset indication didn't turn o|Device isn't ready)"
RDMA_DRIVERS = rule(
    Texts(
        "BW248",
        "rdma-driver-errors",
        Layer.NIC,
        "fatal errors of RDMA drivers other than mlx5",
        "The firmware of the adapter does not answer its driver (efa, bnxt_en, bnxt_re, irdma, ice,"
        " hns, ionic).",
        "drain the host first; reload the driver of {subject}, or restart the machine; if it comes"
        " back, update the firmware or replace it",
        REPAIRED,
        (
            NVSENTINEL,
            (
                "Linux, drivers/infiniband/hw/{efa,bnxt_re,irdma} and"
                " drivers/net/ethernet/{broadcom/bnxt,intel/ice}"
            ),
        ),
    ),
    Sign(
        line(_EFA_DEVICE + f"(?:{_NO_ADMIN}|{_NOT_READY})"),
        FAIL,
        "its firmware does not answer",
        "the driver closes its queue",
    ),
    Sign(
        line(rf"\befa <bdf>:.*(?:{_NO_ADMIN}|{_NOT_READY})"),
        FAIL,
        "its firmware does not answer",
        "the driver closes its queue",
    ),
    Sign(
        line(
            r"\bbnxt_en <bdf>.*(?:Firmware fatal reset event|FW fatal error reported|Firmware not"
            r" responding|Abandoning firmware reset)"
        ),
        FAIL,
        "its firmware failed",
        "the driver says so if it recovers",
        ends=line(r"\bbnxt_en <bdf>.*(?:Firmware recover|Firmware reset done|FW reset complete)"),
    ),
    Sign(
        line(
            r"\bbnxt_(?:en|re) <bdf>.*(?:cmdq\[0x[0-9a-f]+\]=0x[0-9a-f]+ timedout|Error \(timeout:"
            r" \d+\) msg)"
        ),
        WARN,
        "its firmware did not answer a command",
        "later commands may have worked",
        DAY_S,
    ),
    Sign(
        line(
            r"\b(?:ice|irdma) <bdf>.*(?:critical error|PE reset failed|HMC error|Rebuild"
            r" failed|Reset failed)"
        ),
        FAIL,
        "its driver could not recover it",
        "the driver gives up after it",
    ),
)

_FATAL = r"severity=Uncorrect(?:ed|able) \(Fatal\)"
_OK = line(r"<bdf>: AER: (?:device|Device) recovery successful")
AER_LOGGED = rule(
    Texts(
        "BW249",
        "pcie-aer-logged",
        Layer.PCIE,
        "uncorrectable PCIe errors in the log",
        "A transfer on PCIe was lost. A fatal error takes the link down; the device is gone unless"
        " it recovers.",
        "drain the host first; reboot it; if {subject} comes up again, reseat it, and replace its"
        " riser, cable or slot",
        REPAIRED,
        ("Linux, Documentation/PCI/pcieaer-howto.rst", "Meta GCM, check-syslogs pcie-aer"),
    ),
    Sign(
        line(rf"<bdf>: (?:AER: )?PCIe Bus Error: {_FATAL}"),
        FAIL,
        "a fatal PCIe error",
        "the link went down with it",
        ends=_OK,
    ),
    Sign(
        line(
            r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\) error (?:message )?received(?::|"
            r" from) <bdf>"
        ),
        FAIL,
        "a fatal PCIe error",
        "the link went down with it",
        ends=_OK,
    ),
    # Before Linux 4.19 the address is a number, and the port stands for the device below it.
    Sign(
        line(r"<bdf>: AER: (?:Multiple )?Uncorrected \(Fatal\) error received: id="),
        FAIL,
        "a fatal PCIe error",
        "the link went down with it",
        ends=_OK,
    ),
    Sign(
        line(r"<bdf>: AER: (?:device|Device) recovery failed"),
        FAIL,
        "the device did not recover from a PCIe error",
        "it stays off until it is reset",
        ends=_OK,
    ),
    Sign(
        line(r"<bdf>: DPC: (?:containment event|unmasked uncorrectable error detected)"),
        FAIL,
        "a port cut off the device below it after an uncorrectable error",
        "the port says so if it recovers",
        ends=line(r"<bdf>: AER: (?:device|Device) recovery successful"),
    ),
    Sign(
        line(r"<bdf>: (?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Non-Fatal\)"),
        WARN,
        "an uncorrectable PCIe error",
        "the link stays up, one transfer was lost",
        DAY_S,
    ),
    Sign(
        line(
            r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Non-Fatal\) error (?:message"
            r" )?received(?::| from) <bdf>"
        ),
        WARN,
        "an uncorrectable PCIe error",
        "the link stays up, one transfer was lost",
        DAY_S,
    ),
)

DEVICE_RULES: tuple[KernelRule, ...] = (
    FELL_OFF,
    GPU_INIT,
    FABRIC_MANAGER,
    NIC_HEALTH,
    NIC_COMMANDS,
    SLOT_POWER,
    MODULE_EVENTS,
    TX_TIMEOUT,
    RDMA_DRIVERS,
    AER_LOGGED,
)
