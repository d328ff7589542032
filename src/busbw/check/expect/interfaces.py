"""Network interfaces without RDMA against the groups of [[interfaces]]."""

from collections.abc import Iterator
from functools import partial

from busbw.check.base import skipped, unknown
from busbw.check.expect import seen
from busbw.check.expect.assigned import Kind, assign, missing
from busbw.check.expect.base import Asked, Comparison, Expectation
from busbw.check.expect.ports import gbit
from busbw.check.shell_words import word
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.interfaces import NET, Interface

ROW = CheckRow(
    id="BW294",
    name="expect-interfaces",
    layer=Layer.EXPECTED,
    title="network interfaces without RDMA: number, names, rate and MTU, as an expectations file has them",
    right="what [[interfaces]] has: in each group count and names, mtu, and at least rate_gbit_s. With the right number under other "
    "names it warns",
    why="A launch, storage and the fabric of some clouds use them. A link at a tenth of its rate slows each of these, and a job only "
    "seems slow.",
    fix="ethtool {netdev}; ip link show {netdev}; reseat the cable, and check the switch port",
    stays="a cable is permanent; an MTU set with ip link is lost at the next reboot",
    reads=("/sys/class/net/*/{speed,operstate,mtu,device}",),
    sources=("the file given with --expect",),
)

KIND = Kind(table="interfaces", noun="interface", where=NET, fix="lspci | grep -i ethernet; ip link; dmesg | grep -i eth")


def look(asked: Asked) -> Iterator[Found]:
    """For each group the interfaces that are missing, then each interface."""
    if not asked.node.interfaces:
        yield skipped("the file expects no interface without RDMA")
        return
    have = seen.interfaces(asked.machine)
    if not have and not seen.has_sysfs(asked.machine):
        yield unknown("", "the interfaces cannot be read: /sys/class is empty")
        return
    for filled in assign(have, asked.node.interfaces, partial(_compared, asked)):
        yield from missing(asked, filled, KIND)
        for one in filled.parts:
            yield from _compared(asked, one, filled.number).found("it is there")


def _compared(asked: Asked, one: Interface, number: int) -> Comparison:
    group = asked.node.interfaces[number]
    name = word(one.name)
    compared = Comparison(asked, one.name, f"ethtool {name}; ip link show {name}; reseat the cable, and check the switch port")
    if group.rate_gbit_s is not None and not one.up:
        compared.same("state", "down", "up", ("interfaces", number, "rate_gbit_s"), f"{NET}/{one.name}/operstate")
    else:
        rate, key = seen.interface_rate(one), ("interfaces", number, "rate_gbit_s")
        compared.least("rate", rate, group.rate_gbit_s, key, f"{NET}/{one.name}/speed", unit=gbit)
    compared.same("MTU", one.mtu, group.mtu, ("interfaces", number, "mtu"), f"{NET}/{one.name}/mtu")
    return compared


CHECK = Expectation(ROW, look)
