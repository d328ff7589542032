"""The traffic class of NCCL's packets."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, passed, skipped, unknown, warned
from busbw.check.machine import Machine, Port
from busbw.check.nccl.settings import READS, Setting, known, settings
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.sizes import parse_int

VARIABLE = "NCCL_IB_TC"
ECN = {0: "no ECN", 1: "ECN-capable (01)", 2: "ECN-capable (10)", 3: "marked as congested (11)"}
PREFIX = "Global tclass="

ROW = CheckRow(
    id="BW173",
    name="nccl-ib-tc",
    layer=Layer.NCCL,
    title=f"{VARIABLE} against the traffic class of the ports",
    right="the class that the switches keep lossless; where a port has a class of its own, the same",
    why="The upper six bits are the DSCP by which switches choose the queue, the lower two are ECN. RDMA in a queue without flow control "
    "loses packets, and a fraction of the bandwidth is left. A class that is set on the port replaces NCCL's.",
    fix=f"export {VARIABLE}={{value}}",
    stays="set it in the job script or /etc/nccl.conf, the same on all hosts",
    reads=(*READS, "/sys/class/infiniband/*/tc/*/traffic_class"),
    sources=("NCCL user guide, NCCL_IB_TC", "RFC 2474", "RFC 3168"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable against each RoCE port; without such a port, what it means."""
    every = settings(machine)
    if every is None:
        yield no_environment()
        return
    setting = every.get(VARIABLE)
    if setting is None:
        yield passed("", f"{VARIABLE} is not set: NCCL's packets have traffic class 0, unless the port has one of its own")
    elif not 0 <= parse_int(setting.value) <= 255:
        yield warned("", f"{setting.text} is no traffic class", setting.evidence("0 to 255"), fix=setting.unset)
    elif machine.ports and not machine.roce_ports:
        yield skipped(f"{setting.text}: there is no RoCE port")
    elif not machine.roce_ports:
        where = "no RDMA device is visible here" if known(machine) else "compare it with the hosts' ports and the switches"
        yield unknown("", f"{setting.text} is {meaning(parse_int(setting.value))}: {where}", setting.evidence())
    else:
        yield from _ports(machine, setting)


def meaning(value: int) -> str:
    """DSCP and ECN of a traffic class."""
    return f"DSCP {value >> 2}, {ECN[value & 3]}"


def _ports(machine: Machine, setting: Setting) -> Iterator[Found]:
    paths = {port: f"/sys/class/infiniband/{port.device}/tc/{port.number}/traffic_class" for port in machine.roce_ports}
    unread = [port for port, path in paths.items() if machine.text(path) is None]
    if unread:
        what = f"{setting.text} is {meaning(parse_int(setting.value))}; whether the ports have a class of their own cannot be read"
        yield unknown("", f"{what}: {machine.read(paths[unread[0]]).reason}", setting.evidence())
    for port, path in paths.items():
        if port not in unread:
            yield _compared(setting, port, path, machine.text(path) or "")


def _compared(setting: Setting, port: Port, path: str, text: str) -> Found:
    value = parse_int(setting.value)
    first = text.partition("\n")[0]
    if not first.startswith(PREFIX):
        evidence = (setting.evidence(), Evidence(path, text or "empty"))
        return passed(port.name, f"{setting.text} is {meaning(value)}; the port has no class of its own", *evidence)
    own = parse_int(first.removeprefix(PREFIX))
    evidence = (setting.evidence(str(own)), Evidence(path, first))
    if own == value:
        return passed(port.name, f"{setting.text} is {meaning(value)}, as on the port", *evidence)
    message = f"{setting.text} is {meaning(value)}, but the port sends with {own}: {meaning(own)}"
    return warned(port.name, message, *evidence, fix=setting.to(str(own)))


CHECK = Check(ROW, look)
