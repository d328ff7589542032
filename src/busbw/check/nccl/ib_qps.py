"""Queue pairs per connection."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nccl.settings import READS, settings
from busbw.check.nic.links import fabric
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

VARIABLE = "NCCL_IB_QPS_PER_CONNECTION"
MOST, BONDED = 128, 4

ROW = CheckRow(
    id="BW175",
    name="nccl-ib-qps",
    layer=Layer.NCCL,
    title=f"{VARIABLE}, and ports of a bond",
    right=f"1 to {MOST}; for ports of a bond 2 or more",
    why="Switches and bonds choose a path by hashing a flow, and a queue pair is one flow. With the default of 1 a connection uses only "
    "one link of a bond: half of its bandwidth if it has two.",
    fix=f"export {VARIABLE}={BONDED}",
    stays="set it in the job script or /etc/nccl.conf, the same on all hosts",
    reads=(*READS, "/sys/class/net/*/bonding/slaves"),
    sources=("NCCL user guide, NCCL_IB_QPS_PER_CONNECTION",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, and whether RoCE ports are bonds."""
    every = settings(machine)
    if every is None:
        yield no_environment()
        return
    setting = every.get(VARIABLE)
    count = parse_int(setting.value) if setting else 1
    text = setting.text if setting else f"{VARIABLE} is not set"
    evidence = setting.evidence(f"1 to {MOST}") if setting else Evidence(f"${VARIABLE}", "not set")
    if not 1 <= count <= MOST:
        yield warned("", f"{text}: NCCL accepts 1 to {MOST}", evidence, fix=ROW.fix)
        return
    bonds = {port.name: slaves for port in fabric(machine) if len(slaves := _slaves(machine, port)) > 1}
    if not bonds or count > 1:
        yield passed("", text if count > 1 or not setting else f"{text}, the default", evidence)
        return
    for name, slaves in bonds.items():
        bond = Evidence("/sys/class/net/*/bonding/slaves", ", ".join(slaves))
        yield warned(name, f"{text}: each connection uses one of the links {', '.join(slaves)}", evidence, bond, fix=ROW.fix)


def _slaves(machine: Machine, port: Port) -> tuple[str, ...]:
    interface = machine.interfaces.get(port.netdev)
    bond = machine.interfaces.get(interface.master, interface) if interface else None
    return bond.slaves if bond else ()


CHECK = Check(ROW, look)
