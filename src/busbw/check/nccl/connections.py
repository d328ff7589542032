"""Variables of RDMA connections: timeout, traffic class, queue pairs and ECE."""

from collections.abc import Iterator

from busbw.check.base import ENVIRONMENT, check, not_offered, passed, skipped, unanswered, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nccl.settings import (
    REMOVE_VARIABLE,
    VARIABLE_SOURCES,
    NcclSetting,
    is_machine_known,
    settings,
    variable,
    version,
)
from busbw.check.nic.links import fabric
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import parse_int
from busbw.host.roce_qos import decoded, parse_traffic_class, traffic_class_path

TIMEOUT_VARIABLE = "NCCL_IB_TIMEOUT"
TIMEOUT_DEFAULTS = (((2, 23), 20), ((2, 14), 18), ((), 14))  # from this version on
UNIT_S, RETRIES, INFINITE_TIMEOUT = 4.096e-6, 7, 32

IB_TIMEOUT = CheckRow(
    id="BW172",
    name="nccl-ib-timeout",
    layer=Layer.NCCL,
    title=f"{TIMEOUT_VARIABLE}, compared with NCCL's default",
    right="not set, or at least the default: 20 since NCCL 2.23, 18 since 2.14, 14 before",
    why=(
        "The timeout is 4.096 us * 2^value, retried 7 times: 20 gives up after 30 s, 18 after 7.5"
        " s, 14 after 0.5 s. Under congestion, or while a link recovers, a lower value ends jobs"
        " with error 12. 0, or 32 and above, never gives up."
    ),
    fix=f"unset {TIMEOUT_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=(*VARIABLE_SOURCES, "libnccl.so.2"),
    sources=("NCCL user guide, NCCL_IB_TIMEOUT",),
)
TC_VARIABLE = "NCCL_IB_TC"
QPS_VARIABLE = "NCCL_IB_QPS_PER_CONNECTION"
MAX_QPS, BONDED_QPS = 128, 4
ECE_VARIABLE = "NCCL_IB_ECE_ENABLE"


@variable(IB_TIMEOUT, TIMEOUT_VARIABLE)
def check_ib_timeout(machine: Machine, setting: NcclSetting) -> Finding:
    nccl_version = version(machine)
    default, name = TIMEOUT_DEFAULTS[0][1], "NCCL since 2.23"
    if nccl_version:
        default = next(value for least, value in TIMEOUT_DEFAULTS if nccl_version >= least)
        name = f"NCCL {'.'.join(map(str, nccl_version))}"
    value = parse_int(setting.value)
    evidence = setting.evidence(f"{default}, the default of {name}, to {INFINITE_TIMEOUT - 1}")
    if value <= 0 or value >= INFINITE_TIMEOUT:
        return warned(
            "",
            f"{setting.text}: a lost connection is never reported, and the job hangs",
            evidence,
            fix=setting.unset,
        )
    seconds = UNIT_S * 2**value * RETRIES
    if value < default:
        message = (
            f"{setting.text} gives up after {seconds:.2g} s; the default of {name} is {default}"
        )
        return warned("", message, evidence, fix=setting.unset)
    return passed("", f"{setting.text} gives up after {seconds:.2g} s", evidence)


IB_TC = CheckRow(
    id="BW173",
    name="nccl-ib-tc",
    layer=Layer.NCCL,
    title=f"{TC_VARIABLE}, compared with the traffic class of the ports",
    right="the class that the switches keep lossless, and equal to the port's class if it has one",
    why=(
        "The upper six bits are the DSCP, by which switches choose the queue. The lower two are"
        " ECN. RDMA in a queue without flow control loses packets and most of the bandwidth. A"
        " class set on the port overrides NCCL's."
    ),
    fix=f"export {TC_VARIABLE}={{value}}",
    stays="set it in the job script or /etc/nccl.conf, the same on all hosts",
    reads=(*VARIABLE_SOURCES, "/sys/class/infiniband/*/tc/*/traffic_class"),
    sources=("NCCL user guide, NCCL_IB_TC", "RFC 2474", "RFC 3168"),
)


@check(IB_TC, needs=ENVIRONMENT)
def check_ib_tc(machine: Machine) -> Iterator[Finding]:
    """The variable, compared with each RoCE port; without such a port, what it means."""
    variables = settings(machine)
    setting = variables.get(TC_VARIABLE)
    if setting is None:
        yield passed(
            "",
            f"{TC_VARIABLE} is not set: NCCL's packets have traffic class 0, unless the port has"
            " its own",
        )
    elif not 0 <= parse_int(setting.value) <= 255:
        yield warned(
            "",
            f"{setting.text} is not a traffic class",
            setting.evidence("0 to 255"),
            fix=setting.unset,
        )
    elif machine.ports and not machine.roce_ports:
        yield skipped(f"{setting.text}: there is no RoCE port")
    elif not machine.roce_ports:
        remark = "compare it with the hosts' ports and the switches"
        if is_machine_known(machine):
            remark = "no RDMA device is visible here"
        message = f"{TC_VARIABLE} is {decoded(parse_int(setting.value))}: {remark}"
        yield not_offered("", message, setting.evidence())
    else:
        yield from _judge_ports(machine, setting)


def _judge_ports(machine: Machine, setting: NcclSetting) -> Iterator[Finding]:
    paths = {port: traffic_class_path(port.device, port.number) for port in machine.roce_ports}
    unread = [port for port, path in paths.items() if machine.text(path) is None]
    if unread:
        message = (
            f"{TC_VARIABLE} is {decoded(parse_int(setting.value))}; the ports' own class cannot be"
            " read"
        )
        reason = machine.read(paths[unread[0]]).reason
        yield unanswered("", f"{message}: {reason}", reason, setting.evidence())
    for port, path in paths.items():
        if port not in unread:
            yield _judge_port_class(setting, port, path, machine.text(path) or "")


def _judge_port_class(setting: NcclSetting, port: RdmaPort, path: str, text: str) -> Finding:
    value, port_class = parse_int(setting.value), parse_traffic_class(text)
    evidence = (
        setting.evidence("" if port_class is None else str(port_class)),
        Evidence(path, text or "empty"),
    )
    if port_class is None:
        return passed(
            port.name,
            f"{TC_VARIABLE} is {decoded(value)}; the port has no class of its own",
            *evidence,
        )
    if port_class == value:
        return passed(port.name, f"{TC_VARIABLE} is {decoded(value)}, as on the port", *evidence)
    message = f"{TC_VARIABLE} is {decoded(value)}, but the port sends with {decoded(port_class)}"
    return warned(port.name, message, *evidence, fix=setting.change_to(str(port_class)))


IB_QPS = CheckRow(
    id="BW175",
    name="nccl-ib-qps",
    layer=Layer.NCCL,
    title=f"{QPS_VARIABLE}, and ports of a bond",
    right=f"1 to {MAX_QPS}; for ports of a bond 2 or more",
    why=(
        "Switches and bonds choose a path by hashing a flow, and a queue pair is one flow. With the"
        " default of 1 a connection uses only one link of a bond: half of its bandwidth if it has"
        " two."
    ),
    fix=f"export {QPS_VARIABLE}={BONDED_QPS}",
    stays="set it in the job script or /etc/nccl.conf, the same on all hosts",
    reads=(*VARIABLE_SOURCES, "/sys/class/net/*/bonding/slaves"),
    sources=("NCCL user guide, NCCL_IB_QPS_PER_CONNECTION",),
)


@check(IB_QPS, needs=ENVIRONMENT)
def check_ib_qps(machine: Machine) -> Iterator[Finding]:
    """The variable, and whether RoCE ports are bonds."""
    variables = settings(machine)
    setting = variables.get(QPS_VARIABLE)
    count = parse_int(setting.value) if setting else 1
    text = setting.text if setting else f"{QPS_VARIABLE} is not set"
    evidence = Evidence(f"${QPS_VARIABLE}", "not set")
    if setting:
        evidence = setting.evidence(f"1 to {MAX_QPS}")
    if not 1 <= count <= MAX_QPS:
        yield warned("", f"{text}: NCCL accepts 1 to {MAX_QPS}", evidence, fix=IB_QPS.fix)
        return
    slaves_by_port = {port.name: _slaves(machine, port) for port in fabric(machine)}
    bonds = {name: slaves for name, slaves in slaves_by_port.items() if len(slaves) > 1}
    if not bonds or count > 1:
        yield passed("", text if count > 1 or not setting else f"{text}, the default", evidence)
        return
    for name, slaves in bonds.items():
        bond = Evidence("/sys/class/net/*/bonding/slaves", ", ".join(slaves))
        yield warned(
            name,
            f"{text}: each connection uses one of the links {', '.join(slaves)}",
            evidence,
            bond,
            fix=IB_QPS.fix,
        )


def _slaves(machine: Machine, port: RdmaPort) -> tuple[str, ...]:
    interface = machine.interfaces.get(port.netdev)
    bond = machine.interfaces.get(interface.master, interface) if interface else None
    return bond.slaves if bond else ()


IB_ECE = CheckRow(
    id="BW176",
    name="nccl-ib-ece",
    layer=Layer.NCCL,
    title=f"{ECE_VARIABLE} in the environment",
    right="not set, or 1, which is the default",
    why=(
        "With ECE the two NICs of a connection negotiate congestion control and adaptive "
        "routing. 0 is a workaround for RoCE NIC firmware that negotiates badly and loses most of "
        "the bandwidth. With newer firmware it only disables these features."
    ),
    fix=f"unset {ECE_VARIABLE}",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL user guide, NCCL_IB_ECE_ENABLE", "NVIDIA/nccl issue 1403"),
)


@variable(IB_ECE, ECE_VARIABLE)
def check_ib_ece(machine: Machine, setting: NcclSetting) -> Finding:
    if parse_int(setting.value):
        return passed("", f"{setting.text} is the default", setting.evidence())
    return warned(
        "",
        f"{setting.text} is a workaround: measure whether it is still needed",
        setting.evidence("not set"),
        fix=setting.unset,
    )
