"""Whether the settings of RoCE are still there after a reboot."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unanswered, warned
from busbw.check.machine import Machine
from busbw.check.roce.settings import absent, settings
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.boot_config import CALL, UNITS, read_setters
from busbw.host.dcb import Dcb

KUBELET = "/var/lib/kubelet"

ROW = CheckRow(
    id="BW101",
    name="roce-at-start",
    layer=Layer.ROCE,
    title="RoCE settings after a reboot",
    right="a systemd unit, a udev rule, a network script (ifupdown, NetworkManager, networkd-dispatcher), lldpad or cron sets them at boot",
    why="A reboot clears flow control, trust mode, congestion control and traffic class. A host that was set up by hand silently loses "
    "packets after its next reboot.",
    fix="write the commands (mlnx_qos or dcb, traffic_class, cma_roce_tos) to a script, make a systemd unit for it, systemctl enable "
    "qos.service",
    stays="an enabled unit is permanent; netplan has no settings for this",
    reads=(CALL, "dcb", "/sys/class/net/*/qos/trust"),
    sources=("NVIDIA Network Operator, NIC configuration", "Alibaba Cloud, SCC instances with GPUs (rdma_qos_init)"),
)


def look(machine: Machine) -> Iterator[Found]:
    """One finding for the machine, if a RoCE port has flow control or trusts DSCP."""
    found = settings(machine)
    states = [one.qos for one in found if one.qos.trust or one.qos.lossless is not None]
    chosen = [qos for qos in states if qos.lossless or qos.trust == "dscp"]
    if not found:
        yield skipped(absent(machine))
    elif not states:
        yield not_offered("", "the settings of RoCE cannot be read")
    elif not chosen:
        yield skipped("no RoCE port has flow control or trusts DSCP")
    else:
        firmware = all(isinstance(qos.dcb, Dcb) and qos.dcb.host is False for qos in chosen)
        yield _judge(machine, firmware=firmware)


def _judge(machine: Machine, *, firmware: bool) -> Found:
    files = read_setters(machine)
    if isinstance(files, str):
        return unanswered("", f"what sets RoCE at boot is unknown: {files}", files)
    enabled = [one for one in files if one.enabled]
    if enabled:
        seen = [Evidence(one.path, ", ".join(one.words)) for one in enabled]
        return passed("", f"{enabled[0].path} sets it at boot", *seen)
    if machine.container:
        return not_offered("", "no file of this container sets it at boot; a file of the host may", fix="busbw check on the host")
    if files:
        name = files[0].path.rpartition("/")[2]
        seen = [Evidence(one.path, "not enabled", "enabled") for one in files]
        if not files[0].path.startswith(tuple(f"/{folder}/" for folder in UNITS)):
            return warned("", f"{name} would set it, but is not executable", *seen, fix=filled("chmod +x {path}", path=files[0].path))
        return warned(
            "", f"{name} would set it, but systemd does not start it", *seen, fix=filled("systemctl enable {unit}", unit=_instance(name))
        )
    if firmware:
        return passed("", "the NICs take it from the switch (DCBX in firmware)", Evidence("dcb", "DCBX is not the host's"))
    if machine.names(KUBELET):
        return not_offered("", "no file sets it at boot; on this node of Kubernetes the NIC Configuration Operator may")
    return warned("", "no file of this host sets it at boot", Evidence(CALL, "none", "a unit, rule or script"), fix=ROW.fix)


def _instance(unit: str) -> str:
    """A template is enabled for one instance: `qos@.service` for an interface."""
    return unit.replace("@.", "@INTERFACE.")


CHECK = Check(ROW, look)
