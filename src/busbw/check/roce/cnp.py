"""Congestion notifications that ports ignored."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import each_port, evidence, total
from busbw.check.rates import LOADED, Count, window
from busbw.check.roce.settings import STAYS
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

IGNORED, HANDLED = "rp_cnp_ignored", "rp_cnp_handled"
MOST = 0.01

ROW = CheckRow(
    id="BW099",
    name="roce-cnp",
    layer=Layer.ROCE,
    title="ignored congestion notifications (CNPs)",
    right=f"at most {MOST:.0%} of those received between two readings (--watch-for, --since), or since the driver was loaded",
    why="A remote host asked this one to slow down, and it did not. Congestion control is off at this end (roce_rp), or off for that "
    "priority.",
    fix="for the priority of RDMA: echo 1 > /sys/class/net/{netdev}/ecn/roce_rp/enable/PRIORITY",
    stays=STAYS,
    reads=(f"/sys/class/infiniband/*/ports/*/hw_counters/{{{IGNORED},{HANDLED}}}",),
    sources=("Linux drivers/infiniband/hw/mlx5/counters.c", "Prometheus node_exporter, InfiniBand collector"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each RoCE port."""
    yield from each_port(
        machine, (f"hw_counters/{IGNORED}", f"hw_counters/{HANDLED}"), "", lambda port, found: _judge(machine, port, found), ethernet=True
    )


def _judge(machine: Machine, port: Port, found: list[Count]) -> Found:
    if len(found) < 2:
        return not_offered(port.name, "its driver does not count congestion notifications")
    recent = window(machine, found)
    values, since = (recent.counts, recent.since) if total(recent.counts, ".*") else (tuple(found), LOADED)  # none came
    ignored, handled = total(values, IGNORED), total(values, HANDLED)
    message = f"{ignored} of {ignored + handled} congestion notifications ignored {since}"
    if ignored > MOST * (ignored + handled):
        fix = filled(ROW.fix, netdev=port.netdev or "INTERFACE")
        return warned(port.name, message, *evidence(found, IGNORED), *evidence(found, HANDLED, ""), fix=fix, weight=ignored)
    return passed(port.name, message, *evidence(found, IGNORED))


CHECK = Check(ROW, look)
