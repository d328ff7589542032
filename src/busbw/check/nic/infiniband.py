"""The subnet manager and partition keys of InfiniBand ports."""

from collections.abc import Iterator

from busbw.check.base import check, failed, passed, skipped, unread, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nccl.settings import VARIABLE_SOURCES, settings
from busbw.check.nic.links import by_model, own_ports
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import parse_int

SUBNET_MANAGER = CheckRow(
    id="BW063",
    name="nic-subnet-manager",
    layer=Layer.NIC,
    title="subnet manager of InfiniBand ports",
    right="each port with a link knows the address of a subnet manager (sm_lid is not 0)",
    why=(
        "Without a subnet manager a port with a link stays in the state INIT: it has no address and"
        " sends nothing."
    ),
    fix=(
        "sminfo -C {device} queries it; if the fabric has a subnet manager (managed switch, "
        "UFM), repair that, as a second one may reroute running jobs; if it has none, start one: "
        "opensm on one host"
    ),
    stays=(
        "if the service is enabled: systemctl enable opensm (its name differs between"
        " distributions)"
    ),
    reads=("/sys/class/infiniband/*/ports/*/{sm_lid,state,phys_state}",),
    sources=("InfiniBand Architecture Specification, subnet management",),
)
FULL_MEMBER_BIT = 0x8000  # the bit of full members
VARIABLE = "NCCL_IB_PKEY"


@check(SUBNET_MANAGER)
def check_subnet_manager(machine: Machine) -> Iterator[Finding]:
    """A finding for each InfiniBand port with a link."""
    ports = [port for port in own_ports(machine) if port.layer == "InfiniBand"]
    linked = [
        port for port in ports if (machine.text(f"{port.path}/phys_state") or "5").startswith("5")
    ]
    if not linked:
        yield skipped("no InfiniBand port with a link" if ports else "no InfiniBand port")
    for port in linked:
        path = f"{port.path}/sm_lid"
        reading = machine.read(path)
        try:
            lid = int(reading.text or "", 0)
        except ValueError:
            yield unread(port.name, reading, "the address of the subnet manager")
            continue
        evidence = (
            Evidence(path, reading.text or "", "not 0x0"),
            Evidence(f"{port.path}/state", machine.text(f"{port.path}/state") or ""),
        )
        if lid:
            yield passed(port.name, f"its subnet manager has LID {lid}", *evidence)
        else:
            yield failed(
                port.name,
                "it has a link, but no subnet manager",
                *evidence,
                fix=filled(SUBNET_MANAGER.fix, device=port.device),
            )


PKEY = CheckRow(
    id="BW064",
    name="nic-pkey",
    layer=Layer.NIC,
    title="partition keys of InfiniBand ports",
    right=(
        "the same keys on all active ports of one model, and full membership for the key of NCCL"
        " (index 0, or NCCL_IB_PKEY)"
    ),
    why=(
        "Two limited members of a partition cannot communicate. NCCL uses the key at index 0 unless"
        " NCCL_IB_PKEY sets another index."
    ),
    fix=(
        "make {device} a full member of the partition in the subnet manager (partitions.conf of"
        " opensm, or UFM)"
    ),
    stays="in the subnet manager's configuration",
    reads=("/sys/class/infiniband/*/ports/*/pkeys/*", *VARIABLE_SOURCES),
    sources=(
        "InfiniBand Architecture Specification, partitioning",
        "NCCL user guide, NCCL_IB_PKEY",
    ),
)


@check(PKEY)
def check_pkey(machine: Machine) -> Iterator[Finding]:
    """Each active InfiniBand port, compared with ports of the same model.

    Storage ports may be in other partitions.
    """
    ports = [port for port in own_ports(machine) if port.layer == "InfiniBand" and port.active]
    if not ports:
        yield skipped("no active InfiniBand port")
    keys = {port.name: _keys_of(machine, port) for port in ports}
    groups, index = list(by_model(machine, ports).values()), _index_of_nccl(machine)
    for port in ports:
        port_keys = keys[port.name]
        alike = next((group for group in groups if port in group), [port])
        keys_alike = [keys[other.name] for other in alike]
        usual = max(keys_alike, key=keys_alike.count)
        evidence = Evidence(
            f"{port.path}/pkeys/{index}", port_keys.get(index, "no key"), "0x8000 or more"
        )
        fix = filled(PKEY.fix, device=port.device)
        if not port_keys:
            yield unread(port.name, machine.read(f"{port.path}/pkeys/0"), "its partition keys")
        elif not int(port_keys.get(index, "0"), 16) & FULL_MEMBER_BIT:
            yield warned(
                port.name,
                f"it is not a full member of the partition at index {index}",
                evidence,
                fix=fix,
            )
        elif port_keys != usual:
            differing = Evidence(f"{port.path}/pkeys/*", _keys_text(port_keys), _keys_text(usual))
            yield warned(
                port.name,
                "its partition keys differ from most ports of the same model",
                differing,
                fix=fix,
            )
        else:
            yield passed(port.name, f"it is a full member of {port_keys[index]}", evidence)


def _keys_of(machine: Machine, port: RdmaPort) -> dict[int, str]:
    texts = {
        int(index): machine.text(f"{port.path}/pkeys/{index}")
        for index in machine.names(f"{port.path}/pkeys")
        if index.isdecimal()
    }
    return {
        index: text
        for index, text in texts.items()
        if text and text.startswith("0x") and int(text, 16)
    }


def _index_of_nccl(machine: Machine) -> int:
    setting = settings(machine).get(VARIABLE)
    return parse_int(setting.value) if setting else 0


def _keys_text(keys: dict[int, str]) -> str:
    return ", ".join(f"{index}: {key}" for index, key in sorted(keys.items()))
