"""Whether all RoCE ports of a host have the same settings."""

from collections.abc import Iterator, Sequence

from busbw.check.base import Check, not_offered, passed, skipped, unknown, warned
from busbw.check.machine import Machine
from busbw.check.roce.settings import STAYS, Setting, absent, settings, values
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.roce_qos import rdma_cm_path

ROW = CheckRow(
    id="BW097",
    name="roce-alike",
    layer=Layer.ROCE,
    title="identical settings on all RoCE ports",
    right="the same trust mode, flow control, congestion control, DSCP map, bandwidth shares and traffic class on all ports of the host",
    why="A port that a script missed loses packets on its rail. A collective is as slow as its slowest rail.",
    fix="set {what} of {netdev} to the value of {other}: mlnx_qos -i {other} shows it",
    stays=STAYS,
    reads=("dcb", "/sys/class/net/*/{qos,ecn}", "/sys/class/infiniband/*/tc/*/traffic_class", rdma_cm_path("*", "*", "*")),
    sources=("NVIDIA Network Operator, NIC configuration",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each setting that can be read, compared with most ports."""
    found = settings(machine)
    if len(found) < 2:
        yield skipped("fewer than two RoCE interfaces" if found else absent(machine))
        return
    table = [values(machine, setting) for setting in found]
    known = [what for what in table[0] if any(one[what] for one in table)]
    if not known:
        yield not_offered("", "no setting of RoCE can be read here")
        return
    differing = [one for what in known for one in _differing(found, what, [each[what] for each in table])]
    yield from differing
    if not differing:
        yield passed("", f"{len(found)} RoCE interfaces have the same settings", Evidence("settings that were compared", ", ".join(known)))


def _differing(found: Sequence[Setting], what: str, column: list[str]) -> Iterator[Found]:
    usual = max(column, key=column.count)
    model = found[column.index(usual)]
    for setting, value in zip(found, column, strict=True):
        if value != usual:
            yield _differs(setting, what, value, usual, model)


def _differs(setting: Setting, what: str, value: str, usual: str, model: Setting) -> Found:
    evidence = Evidence(f"{setting.qos.netdev}: {what}", value or "not readable", usual or "not readable, as on most ports")
    if not value:
        return unknown(setting.subject, f"its {what} cannot be read; on most ports it can", evidence)
    fix = filled(ROW.fix, what=what, netdev=setting.qos.netdev, other=model.qos.netdev)
    return warned(setting.subject, f"its {what} differs from most ports of this host", evidence, fix=fix)


CHECK = Check(ROW, look)
