"""Partition keys of InfiniBand ports."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unknown, warned
from busbw.check.machine import Machine, Port
from busbw.core.checking import CheckRow, Evidence, Found, Layer

FULL = 0x8000  # the bit of full members

ROW = CheckRow(
    id="BW064",
    name="nic-pkey",
    layer=Layer.NIC,
    title="partition keys of InfiniBand ports",
    right="the same keys on all active ports, one of them at index 0 and of a full member",
    why="Two limited members of a partition cannot talk to each other. NCCL uses the key at index 0 unless NCCL_IB_PKEY names another.",
    fix="make {device} a full member of the partition in the subnet manager (partitions.conf of opensm, or UFM)",
    stays="in the subnet manager's configuration",
    reads=("/sys/class/infiniband/*/ports/*/pkeys/*",),
    sources=("InfiniBand Architecture Specification, partitioning", "NCCL user guide, NCCL_IB_PKEY"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each active InfiniBand port."""
    ports = [port for port in machine.ports if port.layer == "InfiniBand" and port.active]
    if not ports:
        yield skipped("no active InfiniBand port")
    keys = {port.name: _keys(machine, port) for port in ports}
    usual = max(keys.values(), key=list(keys.values()).count, default={})
    for port in ports:
        own = keys[port.name]
        evidence = Evidence(f"{port.path}/pkeys/0", own.get(0, "no key"), "0x8000 or more")
        fix = ROW.fix.format(device=port.device)
        if not own:
            yield unknown(port.name, "its partition keys cannot be read")
        elif not int(own.get(0, "0"), 16) & FULL:
            yield warned(port.name, "it is not a full member of the partition at index 0", evidence, fix=fix)
        elif own != usual:
            differing = Evidence(f"{port.path}/pkeys/*", _listed(own), _listed(usual))
            yield warned(port.name, "its partition keys differ from those of most ports of this host", differing, fix=fix)
        else:
            yield passed(port.name, f"it is a full member of {own[0]}", evidence)


def _keys(machine: Machine, port: Port) -> dict[int, str]:
    texts = {int(index): machine.text(f"{port.path}/pkeys/{index}") for index in machine.names(f"{port.path}/pkeys") if index.isdigit()}
    return {index: text for index, text in texts.items() if text and text.startswith("0x") and int(text, 16)}


def _listed(keys: dict[int, str]) -> str:
    return ", ".join(f"{index}: {key}" for index, key in sorted(keys.items()))


CHECK = Check(ROW, look)
