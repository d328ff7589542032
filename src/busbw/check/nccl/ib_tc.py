"""The traffic class of NCCL's packets."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, not_offered, passed, skipped, unanswered, warned
from busbw.check.machine import Machine, Port
from busbw.check.nccl.settings import READS, Setting, known, settings
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int
from busbw.host.roce_qos import decoded, parse_traffic_class, traffic_class_path

VARIABLE = "NCCL_IB_TC"

ROW = CheckRow(
    id="BW173",
    name="nccl-ib-tc",
    layer=Layer.NCCL,
    title=f"{VARIABLE}, compared with the traffic class of the ports",
    right="the class that the switches keep lossless, and equal to the port's class if it has one",
    why="The upper six bits are the DSCP, by which switches choose the queue. The lower two are ECN. RDMA in a queue without flow "
    "control loses packets and most of the bandwidth. A class set on the port overrides NCCL's.",
    fix=f"export {VARIABLE}={{value}}",
    stays="set it in the job script or /etc/nccl.conf, the same on all hosts",
    reads=(*READS, "/sys/class/infiniband/*/tc/*/traffic_class"),
    sources=("NCCL user guide, NCCL_IB_TC", "RFC 2474", "RFC 3168"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, compared with each RoCE port; without such a port, what it means."""
    every = settings(machine)
    if every is None:
        yield no_environment()
        return
    setting = every.get(VARIABLE)
    if setting is None:
        yield passed("", f"{VARIABLE} is not set: NCCL's packets have traffic class 0, unless the port has its own")
    elif not 0 <= parse_int(setting.value) <= 255:
        yield warned("", f"{setting.text} is not a traffic class", setting.evidence("0 to 255"), fix=setting.unset)
    elif machine.ports and not machine.roce_ports:
        yield skipped(f"{setting.text}: there is no RoCE port")
    elif not machine.roce_ports:
        where = "no RDMA device is visible here" if known(machine) else "compare it with the hosts' ports and the switches"
        yield not_offered("", f"{VARIABLE} is {decoded(parse_int(setting.value))}: {where}", setting.evidence())
    else:
        yield from _ports(machine, setting)


def _ports(machine: Machine, setting: Setting) -> Iterator[Found]:
    paths = {port: traffic_class_path(port.device, port.number) for port in machine.roce_ports}
    unread = [port for port, path in paths.items() if machine.text(path) is None]
    if unread:
        what = f"{VARIABLE} is {decoded(parse_int(setting.value))}; the ports' own class cannot be read"
        reason = machine.read(paths[unread[0]]).reason
        yield unanswered("", f"{what}: {reason}", reason, setting.evidence())
    for port, path in paths.items():
        if port not in unread:
            yield _compared(setting, port, path, machine.text(path) or "")


def _compared(setting: Setting, port: Port, path: str, text: str) -> Found:
    value, own = parse_int(setting.value), parse_traffic_class(text)
    evidence = (setting.evidence("" if own is None else str(own)), Evidence(path, text or "empty"))
    if own is None:
        return passed(port.name, f"{VARIABLE} is {decoded(value)}; the port has no class of its own", *evidence)
    if own == value:
        return passed(port.name, f"{VARIABLE} is {decoded(value)}, as on the port", *evidence)
    message = f"{VARIABLE} is {decoded(value)}, but the port sends with {decoded(own)}"
    return warned(port.name, message, *evidence, fix=setting.to(str(own)))


CHECK = Check(ROW, look)
