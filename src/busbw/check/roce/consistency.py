"""Whether all RoCE ports have the same settings, and keep them over a reboot."""

from collections.abc import Iterator, Sequence

from busbw.check.base import check, not_offered, passed, skipped, unanswered, unknown, warned
from busbw.check.machine import Machine
from busbw.check.roce.settings import STAYS_AFTER_REBOOT, RoceInterface, absent, settings, values
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.dcb import Dcb
from busbw.host.roce_qos import CALL, UNITS, rdma_cm_path, read_setters

ALIKE = CheckRow(
    id="BW097",
    name="roce-alike",
    layer=Layer.ROCE,
    title="identical settings on all RoCE ports",
    right=(
        "the same trust mode, flow control, congestion control, DSCP map, bandwidth shares and"
        " traffic class on all ports of the host"
    ),
    why=(
        "A port that a script missed loses packets on its rail. A collective is as slow as its"
        " slowest rail."
    ),
    fix="set the {what} of {netdev} to that of {other}: {usual}",
    stays=STAYS_AFTER_REBOOT,
    reads=(
        "dcb",
        "/sys/class/net/*/{qos,ecn}",
        "/sys/class/infiniband/*/tc/*/traffic_class",
        rdma_cm_path("*", "*", "*"),
    ),
    sources=("NVIDIA Network Operator, NIC configuration",),
)
KUBELET = "/var/lib/kubelet"


@check(ALIKE)
def check_alike(machine: Machine) -> Iterator[Finding]:
    """A finding for each setting of a port that differs from most ports."""
    ports = settings(machine)
    if len(ports) < 2:
        yield skipped("fewer than two RoCE interfaces" if ports else absent(machine))
        return
    table = [values(machine, setting) for setting in ports]
    columns: dict[str, list[str]] = {}
    for port_values in table:
        for name, value in port_values.items():
            columns.setdefault(name, []).append(value)
    known = [name for name, column in columns.items() if any(column)]
    if not known:
        yield not_offered("", "no setting of RoCE can be read here")
        return
    differing: list[Finding] = []
    for name in known:
        differing += _differing_ports(ports, name, columns[name])
    yield from differing
    if not differing:
        yield passed(
            "",
            f"{len(ports)} RoCE interfaces have the same settings",
            Evidence("settings that were compared", ", ".join(known)),
        )


def _differing_ports(
    ports: Sequence[RoceInterface], name: str, column: list[str]
) -> Iterator[Finding]:
    usual = max(column, key=column.count)
    model_port = ports[column.index(usual)]
    for setting, value in zip(ports, column, strict=True):
        if value != usual:
            yield _judge_difference(setting, name, value, usual, model_port)


def _judge_difference(
    setting: RoceInterface, name: str, value: str, usual: str, model_port: RoceInterface
) -> Finding:
    evidence = Evidence(
        f"{setting.qos.netdev}: {name}",
        value or "not readable",
        usual or "not readable, as on most ports",
    )
    if not value:
        return unknown(
            setting.subject, f"its {name} cannot be read; on most ports it can", evidence
        )
    fix = filled(
        ALIKE.fix,
        what=name,
        netdev=setting.qos.netdev,
        other=model_port.qos.netdev,
        usual=usual or "none",
    )
    return warned(
        setting.subject, f"its {name} differs from most ports of this host", evidence, fix=fix
    )


AT_START = CheckRow(
    id="BW101",
    name="roce-at-start",
    layer=Layer.ROCE,
    title="RoCE settings after a reboot",
    right=(
        "a systemd unit, a udev rule, a network script (ifupdown, NetworkManager,"
        " networkd-dispatcher), lldpad or cron sets them at boot"
    ),
    why=(
        "A reboot clears flow control, trust mode, congestion control and traffic class. A host "
        "that was set up by hand silently loses packets after its next reboot."
    ),
    fix=(
        "write the commands (mlnx_qos or dcb, traffic_class, cma_roce_tos) to a script, make a "
        "systemd unit for it, systemctl enable qos.service"
    ),
    stays="an enabled unit is permanent; netplan has no settings for this",
    reads=(CALL, "dcb", "/sys/class/net/*/qos/trust"),
    sources=(
        "NVIDIA Network Operator, NIC configuration",
        "Alibaba Cloud, SCC instances with GPUs (rdma_qos_init)",
    ),
)


@check(AT_START)
def check_at_start(machine: Machine) -> Iterator[Finding]:
    """One finding for the machine, if a RoCE port has flow control or trusts DSCP."""
    ports = settings(machine)
    states = [
        setting.qos for setting in ports if setting.qos.trust or setting.qos.lossless is not None
    ]
    chosen = [qos for qos in states if qos.lossless or qos.trust == "dscp"]
    if not ports:
        yield skipped(absent(machine))
    elif not states:
        yield not_offered("", "the settings of RoCE cannot be read")
    elif not chosen:
        yield skipped("no RoCE port has flow control or trusts DSCP")
    else:
        firmware = all(isinstance(qos.dcb, Dcb) and qos.dcb.host is False for qos in chosen)
        yield _judge_boot_files(machine, firmware=firmware)


def _judge_boot_files(machine: Machine, *, firmware: bool) -> Finding:
    files = read_setters(machine)
    if isinstance(files, str):
        return unanswered("", f"what sets RoCE at boot is unknown: {files}", files)
    enabled = [file for file in files if file.enabled]
    if enabled:
        evidence = [Evidence(file.path, ", ".join(file.words)) for file in enabled]
        return passed("", f"{enabled[0].path} sets it at boot", *evidence)
    if machine.container:
        return not_offered(
            "",
            "no file of this container sets it at boot; a file of the host may",
            fix="busbw check on the host",
        )
    if files:
        name = files[0].path.rpartition("/")[2]
        evidence = [Evidence(file.path, "not enabled", "enabled") for file in files]
        if not files[0].path.startswith(tuple(f"/{folder}/" for folder in UNITS)):
            return warned(
                "",
                f"{name} would set it, but is not executable",
                *evidence,
                fix=filled("chmod +x {path}", path=files[0].path),
            )
        return warned(
            "",
            f"{name} would set it, but systemd does not start it",
            *evidence,
            fix=filled("systemctl enable {unit}", unit=_instance(name)),
        )
    if firmware:
        return passed(
            "",
            "the NICs take it from the switch (DCBX in firmware)",
            Evidence("dcb", "DCBX is not the host's"),
        )
    if machine.names(KUBELET):
        return not_offered(
            "",
            "no file sets it at boot; on this node of Kubernetes the NIC Configuration"
            " Operator may",
        )
    return warned(
        "",
        "no file of this host sets it at boot",
        Evidence(CALL, "none", "a unit, rule or script"),
        fix=AT_START.fix,
    )


def _instance(unit: str) -> str:
    """The name by which a unit is enabled: of `qos@.service`, the instance for an interface."""
    return unit.replace("@.", "@INTERFACE.")
