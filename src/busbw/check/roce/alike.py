"""Whether all RoCE ports of a host have the same settings."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unknown, warned
from busbw.check.machine import Machine
from busbw.check.roce.settings import STAYS, Setting, absent, listed, settings
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.host.dcb import Dcb
from busbw.host.roce_qos import rdma_cm_path, traffic_class_path

ROW = CheckRow(
    id="BW097",
    name="roce-alike",
    layer=Layer.ROCE,
    title="equal settings on all RoCE ports",
    right="the same trust mode, flow control, congestion control, DSCP map, bandwidth shares and traffic class on all ports of the host",
    why="A port that a script left out loses packets on its rail alone. A collective is as slow as its slowest rail.",
    fix="set {what} of {netdev} as on {other}: mlnx_qos -i {other} shows it",
    stays=STAYS,
    reads=("dcb", "/sys/class/net/*/{qos,ecn}", "/sys/class/infiniband/*/tc/*/traffic_class", rdma_cm_path("*", "*", "*")),
    sources=("NVIDIA Network Operator, NIC configuration",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each setting that can be read, against most ports."""
    found = settings(machine)
    if len(found) < 2:
        yield skipped("fewer than two RoCE interfaces" if found else absent(machine))
        return
    table = [_values(machine, setting) for setting in found]
    known = [what for what in table[0] if any(values[what] for values in table)]
    if not known:
        yield unknown("", "no setting of RoCE can be read here")
        return
    differing = 0
    for what in known:
        column = [values[what] for values in table]
        usual = max(column, key=column.count)
        model = found[column.index(usual)]
        for setting, value in zip(found, column, strict=True):
            if value != usual:
                differing += 1
                yield _differs(setting, what, value, usual, model)
    if not differing:
        yield passed("", f"{len(found)} RoCE interfaces have the same settings", Evidence("settings that were compared", ", ".join(known)))


def _differs(setting: Setting, what: str, value: str, usual: str, model: Setting) -> Found:
    evidence = Evidence(f"{setting.qos.netdev}: {what}", value or "not readable", usual or "not readable, as on most ports")
    if not value:
        return unknown(setting.subject, f"its {what} cannot be read, that of most ports can", evidence)
    fix = ROW.fix.format(what=what, netdev=setting.qos.netdev, other=model.qos.netdev)
    return warned(setting.subject, f"its {what} differs from most ports of this host", evidence, fix=fix)


def _values(machine: Machine, setting: Setting) -> dict[str, str]:
    """Settings as text; '' where one cannot be read."""
    qos, port = setting.qos, setting.port
    dcb = qos.dcb if isinstance(qos.dcb, Dcb) else Dcb()
    return {
        "trust mode": qos.trust,
        "flow control": "" if dcb.pfc is None else listed(dcb.pfc),
        "DSCP map": ", ".join(f"{dscp}: {priority}" for dscp, priority in sorted(dcb.dscp.items())),
        "traffic classes": ", ".join(map(str, dcb.classes)),
        "bandwidth shares": ", ".join(map(str, dcb.shares)),
        "notification point": "" if qos.notify is None else listed(qos.notify),
        "reaction point": "" if qos.react is None else listed(qos.react),
        "DSCP of CNPs": qos.cnp or "",
        "traffic class": machine.text(traffic_class_path(port.device, port.number)) or "",
        "RDMA-CM type of service": machine.text(rdma_cm_path(port.device, port.number, "default_roce_tos")) or "",
    }


CHECK = Check(ROW, look)
