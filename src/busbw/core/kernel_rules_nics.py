"""Rules of the kernel log on network cards, their transceivers and their interfaces."""

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
MLX5 = "Linux, drivers/net/ethernet/mellanox/mlx5/core"

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

NETWORK_TABLES = rule(
    Texts(
        "BW269",
        "network-tables-full",
        Layer.KERNEL,
        "tables of neighbors and connections that were full",
        "The kernel drops packets to hosts that have no place in its table of neighbors (ARP), or"
        " whose connections have none: starts of large jobs hang or fail.",
        "for neighbors: sysctl -w net.ipv4.neigh.default.gc_thresh3=16384"
        " net.ipv4.neigh.default.gc_thresh2=8192 net.ipv6.neigh.default.gc_thresh3=16384; for"
        " connections: sysctl -w net.netfilter.nf_conntrack_max=1048576, or exempt the ports of"
        " jobs from tracking",
        "after reboot: lost; write it to a file in /etc/sysctl.d",
        ("Linux, net/core/neighbour.c and net/netfilter/nf_conntrack_core.c", GPUD),
    ),
    Sign(
        line(r"(?:(?P<subject>arp|ndisc)_cache: neighbou?r|\b[Nn]eighbou?r) table overflow"),
        WARN,
        "the table of neighbors was full",
        "entries become free again",
        DAY_S,
    ),
    Sign(
        line(r"\b(?:nf|ip)_conntrack: (?:nf_conntrack: )?table full"),
        WARN,
        "the table of connections was full, and packets were dropped",
        "entries become free again",
        DAY_S,
    ),
)

NIC_RULES: tuple[KernelRule, ...] = (
    NIC_HEALTH,
    NIC_COMMANDS,
    SLOT_POWER,
    MODULE_EVENTS,
    TX_TIMEOUT,
    RDMA_DRIVERS,
    NETWORK_TABLES,
)
