"""Partition keys of InfiniBand ports."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unread, warned
from busbw.check.machine import Machine, Port
from busbw.check.nccl.settings import READS, settings
from busbw.check.nic.links import kinds
from busbw.check.nic.links import own as own_ports
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

FULL = 0x8000  # the bit of full members
VARIABLE = "NCCL_IB_PKEY"

ROW = CheckRow(
    id="BW064",
    name="nic-pkey",
    layer=Layer.NIC,
    title="partition keys of InfiniBand ports",
    right="the same keys on all active ports of one model, and full membership for the key of NCCL (index 0, or NCCL_IB_PKEY)",
    why="Two limited members of a partition cannot communicate. NCCL uses the key at index 0 unless NCCL_IB_PKEY sets another index.",
    fix="make {device} a full member of the partition in the subnet manager (partitions.conf of opensm, or UFM)",
    stays="in the subnet manager's configuration",
    reads=("/sys/class/infiniband/*/ports/*/pkeys/*", *READS),
    sources=("InfiniBand Architecture Specification, partitioning", "NCCL user guide, NCCL_IB_PKEY"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each active InfiniBand port, compared with ports of the same model: storage ports may be in other partitions."""
    ports = [port for port in own_ports(machine) if port.layer == "InfiniBand" and port.active]
    if not ports:
        yield skipped("no active InfiniBand port")
    keys = {port.name: _keys(machine, port) for port in ports}
    groups, index = list(kinds(machine, ports).values()), _index(machine)
    for port in ports:
        own = keys[port.name]
        usual = _usual([keys[like.name] for like in next((group for group in groups if port in group), [port])])
        evidence = Evidence(f"{port.path}/pkeys/{index}", own.get(index, "no key"), "0x8000 or more")
        fix = filled(ROW.fix, device=port.device)
        if not own:
            yield unread(port.name, machine.read(f"{port.path}/pkeys/0"), "its partition keys")
        elif not int(own.get(index, "0"), 16) & FULL:
            yield warned(port.name, f"it is not a full member of the partition at index {index}", evidence, fix=fix)
        elif own != usual:
            differing = Evidence(f"{port.path}/pkeys/*", _listed(own), _listed(usual))
            yield warned(port.name, "its partition keys differ from most ports of the same model", differing, fix=fix)
        else:
            yield passed(port.name, f"it is a full member of {own[index]}", evidence)


def _keys(machine: Machine, port: Port) -> dict[int, str]:
    texts = {int(index): machine.text(f"{port.path}/pkeys/{index}") for index in machine.names(f"{port.path}/pkeys") if index.isdecimal()}
    return {index: text for index, text in texts.items() if text and text.startswith("0x") and int(text, 16)}


def _usual(keys: list[dict[int, str]]) -> dict[int, str]:
    return max(keys, key=keys.count)


def _index(machine: Machine) -> int:
    """The index of the key that NCCL uses."""
    setting = (settings(machine) or {}).get(VARIABLE)
    return parse_int(setting.value) if setting else 0


def _listed(keys: dict[int, str]) -> str:
    return ", ".join(f"{index}: {key}" for index, key in sorted(keys.items()))


CHECK = Check(ROW, look)
