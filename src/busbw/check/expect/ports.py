"""RDMA ports against the groups of [[ports]]."""

from collections.abc import Iterator
from functools import partial

from busbw.check.base import skipped, unknown
from busbw.check.expect import seen
from busbw.check.expect.assigned import Filled, Kind, assign, missing
from busbw.check.expect.base import Asked, Comparison, Expectation
from busbw.check.machine import Port
from busbw.check.shell_words import word
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nic import RDMA

ROW = CheckRow(
    id="BW293",
    name="expect-ports",
    layer=Layer.EXPECTED,
    title="RDMA ports: number, names, link layer, state and rate, as an expectations file has them",
    right="what [[ports]] has: in each group count and names, link_layer, state, and at least rate_gbit_s. With the right number "
    "under other names it warns",
    why="Checks that compare the ports of a host with each other see nothing if all are gone, or if all run at half their rate after a "
    "change of switch, cable or firmware.",
    fix="lspci | grep -i -E 'infiniband|ethernet'; rdma link; dmesg | grep mlx5; for {device}: mlxlink -d {device} -m",
    stays="a cable, card or switch setting is permanent; ip link set up is not",
    reads=("/sys/class/infiniband/*/ports/*/{link_layer,state,rate}",),
    sources=("the file given with --expect",),
)

KIND = Kind(
    table="ports",
    noun="RDMA port",
    where=RDMA,
    fix="lspci | grep -i -E 'infiniband|ethernet'; if the card is there: dmesg | grep mlx5; if it is not, check its seat and power",
)


def groups(asked: Asked) -> list[Filled[Port]]:
    """The groups of the file with the ports that stand for them."""
    return assign(seen.ports(asked.machine), asked.node.ports, partial(_compared, asked))


def look(asked: Asked) -> Iterator[Found]:
    """For each group the ports that are missing, then each port."""
    if not asked.node.ports:
        yield skipped("the file expects no RDMA port")
        return
    if not asked.machine.ports and not seen.has_sysfs(asked.machine):
        yield unknown("", "the RDMA devices cannot be read: /sys/class is empty")
        return
    for filled in groups(asked):
        yield from missing(asked, filled, KIND)
        for port in filled.parts:
            yield from _compared(asked, port, filled.number).found("it is there")


def _compared(asked: Asked, port: Port, number: int) -> Comparison:
    machine, group = asked.machine, asked.node.ports[number]
    compared = Comparison(asked, port.name, f"mlxlink -d {word(port.device)} -m; reseat or replace the cable, and check the switch port")
    state = seen.port_state(machine, port)

    def key(name: str) -> tuple[str | int, ...]:
        return "ports", number, name

    compared.same("link layer", port.layer or None, group.link_layer, key("link_layer"), f"{port.path}/link_layer")
    compared.same("state", state, group.state, key("state"), f"{port.path}/state")
    if port.active:
        rate = seen.port_rate(machine, port)
        compared.least("rate", rate, group.rate_gbit_s, key("rate_gbit_s"), f"{port.path}/rate", unit=gbit)
    elif group.state is None and state is not None:  # the rate of a port that is down means nothing
        compared.same("state", state, "ACTIVE" if group.rate_gbit_s else None, key("rate_gbit_s"), f"{port.path}/state")
    return compared


def gbit(rate: float) -> str:
    """`400 Gbit/s`."""
    return f"{rate:g} Gbit/s"


CHECK = Expectation(ROW, look)
