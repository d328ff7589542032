"""Global pause, pause storms, and congestion notifications that were ignored."""

from busbw.check.base import judged, not_offered, passed, unanswered, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import counter_evidence, per_port, total
from busbw.check.rates import SINCE_DRIVER_LOADED, Count, window
from busbw.check.roce.settings import (
    STAYS_AFTER_REBOOT,
    RoceInterface,
    hidden,
    listed,
    per_interface,
)
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.ethtool import read_pause

PAUSE_GLOBAL = CheckRow(
    id="BW098",
    name="roce-pause-global",
    layer=Layer.ROCE,
    title="global pause of RoCE ports",
    right="off if priority flow control is on",
    why=(
        "A global pause stops all priorities of the port, including those that should keep sending."
        " Use one of the two, not both."
    ),
    fix=(
        "drain the host; if the switch port has flow control on the same priorities: ethtool -A"
        " {netdev} rx off tx off"
    ),
    stays=STAYS_AFTER_REBOOT,
    reads=("ethtool -a", "dcb"),
    sources=(
        "IEEE 802.3 annex 31B and IEEE 802.1Qbb",
        "Linux include/uapi/linux/ethtool.h, ETHTOOL_GPAUSEPARAM",
    ),
)
IGNORED, HANDLED = "rp_cnp_ignored", "rp_cnp_handled"
MAX_IGNORED_SHARE = 0.01
ERROR, WARNING = "tx_pause_storm_error_events", "tx_pause_storm_warning_events"


@per_interface(PAUSE_GLOBAL)
def check_pause_global(machine: Machine, setting: RoceInterface) -> Finding:
    qos = setting.qos
    pause = read_pause(machine, qos.netdev)
    if isinstance(pause, str):
        return unanswered(
            setting.subject, hidden(machine, f"global pause cannot be read: {pause}"), pause
        )
    on = [name for name, value in (("rx", pause.rx), ("tx", pause.tx)) if value]
    if on and qos.lossless is None:
        return not_offered(
            setting.subject,
            hidden(machine, "global pause is on; priority flow control cannot be read"),
        )
    return judged(
        right=not (on and qos.lossless),
        subject=setting.subject,
        good=f"{qos.netdev} has global pause {'on, and no priority flow control' if on else 'off'}",
        bad=(
            f"{qos.netdev} has global pause on ({', '.join(on)}) together with flow control on"
            f" priority {listed(qos.lossless)}"
        ),
        evidence=(
            Evidence(
                f"ethtool -a {qos.netdev}",
                f"on: {', '.join(on) or 'none'}",
                "none" if qos.lossless else "",
            ),
        ),
        fix=filled(PAUSE_GLOBAL.fix, netdev=qos.netdev),
    )


CNP = CheckRow(
    id="BW099",
    name="roce-cnp",
    layer=Layer.ROCE,
    title="ignored congestion notifications (CNPs)",
    right=(
        f"at most {MAX_IGNORED_SHARE:.0%} of those received between two readings (--watch-for,"
        " --since), or since the driver was loaded"
    ),
    why=(
        "A remote host asked this one to slow down, and it did not. Congestion control is off at "
        "this end (roce_rp), or off for that priority."
    ),
    fix="for the priority of RDMA: echo 1 > /sys/class/net/{netdev}/ecn/roce_rp/enable/PRIORITY",
    stays=STAYS_AFTER_REBOOT,
    reads=(f"/sys/class/infiniband/*/ports/*/hw_counters/{{{IGNORED},{HANDLED}}}",),
    sources=(
        "Linux drivers/infiniband/hw/mlx5/counters.c",
        "Prometheus node_exporter, InfiniBand collector",
    ),
)


@per_port(CNP, (f"hw_counters/{IGNORED}", f"hw_counters/{HANDLED}"), "", ethernet=True)
def check_cnp(machine: Machine, port: RdmaPort, counters: list[Count]) -> Finding:
    if len(counters) < 2:
        return not_offered(port.name, "its driver does not count congestion notifications")
    recent = window(machine, counters)
    values, since = recent.counts, recent.since
    if not total(values, ".*"):  # without a notification in this time, all since the start count
        values, since = tuple(counters), SINCE_DRIVER_LOADED
    ignored, handled = total(values, IGNORED), total(values, HANDLED)
    message = f"{ignored} of {ignored + handled} congestion notifications ignored {since}"
    if ignored > MAX_IGNORED_SHARE * (ignored + handled):
        fix = filled(CNP.fix, netdev=port.netdev or "INTERFACE")
        return warned(
            port.name,
            message,
            *counter_evidence(counters, IGNORED),
            *counter_evidence(counters, HANDLED, ""),
            fix=fix,
            weight=ignored,
        )
    return passed(port.name, message, *counter_evidence(counters, IGNORED))


STORM = CheckRow(
    id="BW100",
    name="roce-storm",
    layer=Layer.ROCE,
    title="pause storms",
    right="none between two readings (--watch-for, --since), else none since the driver was loaded",
    why=(
        "The port paused its switch for so long that the driver counted it. In an error event "
        "the NIC stops pausing, and packets may be lost. Hosts behind the switch stall meanwhile."
    ),
    fix=(
        "find what stops the receiver: PCIe of {device} (nic-pci-stalls, lspci -vv), or a hung GPU"
        " or host (dmesg -T)"
    ),
    stays="depends on the cause; the counters restart when the driver is loaded",
    reads=(f"ethtool -S: {ERROR}, {WARNING}",),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)


@per_port(STORM, (), f"{ERROR}|{WARNING}", ethernet=True)
def check_storm(machine: Machine, port: RdmaPort, counters: list[Count]) -> Finding:
    recent = window(machine, counters)
    counts = recent.counts
    errors, warnings = total(counts, ERROR), total(counts, WARNING)
    if not errors and not warnings:
        return passed(port.name, f"no pause storm {recent.since}", *counter_evidence(counts))
    message = f"{errors} pause storms that the NIC ended, {warnings} long pauses {recent.since}"
    return warned(
        port.name,
        message,
        *counter_evidence(counts),
        fix=filled(STORM.fix, device=port.device),
        weight=errors + warnings,
    )
