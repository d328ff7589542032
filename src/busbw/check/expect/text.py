"""An expectations file as text, with a comment on each key."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from busbw.check.expect.base import gib
from busbw.check.expect.spec import Expectations

TABLES = {
    "gpus": "GPUs. All are alike in what stands here.",
    "ports": "RDMA ports: a [[ports]] for each group of ports that are alike.",
    "interfaces": (
        "Network interfaces without RDMA: an [[interfaces]] for each group that is alike."
    ),
    "cpus": "CPUs. Hyper-threading and NUMA nodes are BIOS settings.",
    "memory": "Memory of the host.",
    "versions": (
        'The oldest and newest versions. A newest one may be a prefix: driver_max = "570" allows'
        " every 570.x."
    ),
    "storage": "Local drives.",
    "mounts": "File systems: a [[mounts]] for each. Delete those that not every node has.",
    "mute": "Findings that are known: a [[mute]] for each. They are shown, and do not count.",
    "severity": 'Warnings that are failures: nic-mtu = "fail".',
}
KEYS = {
    "gpus.count": "fewer fail, more warn",
    "gpus.addresses": "name a missing GPU; delete them if nodes differ",
    "gpus.model": "exactly",
    "gpus.memory_bytes": "at least, less memory_tolerance = 0.02",
    "gpus.memory_tolerance": "share of memory_bytes that may be missing",
    "gpus.vbios": "exactly; delete it if nodes differ",
    "gpus.serials": "of a host, in the order of its GPUs; other hosts are not compared",
    "gpus.persistence": "persistence mode",
    "gpus.ecc": "ECC mode",
    "gpus.mig": "MIG mode",
    "gpus.nvlinks": "exactly, active links of each GPU",
    "gpus.nvlink_gb_s": "at least, 10^9 bytes per second of a link in one direction",
    "gpus.nvswitches": "at least, on PCI",
    "gpus.pcie_gt_s": "at least: 16 is PCIe 4, 32 is PCIe 5, 64 is PCIe 6",
    "gpus.pcie_width": "at least, lanes",
    "ports.count": "at least",
    "ports.names": "name a missing port; delete them if nodes differ",
    "ports.link_layer": "exactly",
    "ports.state": "exactly",
    "ports.rate_gbit_s": "at least",
    "ports.firmware_min": "not older; newer models have larger numbers",
    "ports.pcie_gt_s": "at least",
    "ports.pcie_width": "at least, lanes",
    "interfaces.count": "at least",
    "interfaces.names": "name a missing interface; delete them if nodes differ",
    "interfaces.rate_gbit_s": "at least, and it is up",
    "interfaces.mtu": "exactly",
    "cpus.sockets": "exactly",
    "cpus.online": "exactly: half or twice as many show hyper-threading",
    "cpus.numa_nodes": "exactly",
    "memory.ram_bytes": "at least, less ram_tolerance = 0.02",
    "memory.ram_tolerance": "share of ram_bytes that may be missing; one module of 32 is 0.031",
    "memory.hugepages": "at least, of the default size",
    "versions.driver_min": "NVIDIA driver",
    "versions.driver_max": "NVIDIA driver",
    "versions.kernel_min": "uname -r",
    "versions.kernel_max": "uname -r",
    "versions.os": "ID of /etc/os-release",
    "versions.os_min": "VERSION_ID of /etc/os-release",
    "versions.os_max": "VERSION_ID of /etc/os-release",
    "storage.nvme": "at least, NVMe drives on PCI",
    "mounts.path": "where it is mounted",
    "mounts.type": "exactly",
    "mounts.min_bytes": "at least; learned: 95% of the node's",
    "mounts.writable": "true: not mounted read-only",
    "mute.check": "name or id of the check",
    "mute.reason": "why the finding is accepted",
    "mute.until": "the last day; from the next one on it counts again, and mute-ended warns",
    "mute.subject": "only this subject, like mlx5_3",
    "mute.host": "only on this host",
}
SIZES = frozenset(("gpus.memory_bytes", "memory.ram_bytes", "mounts.min_bytes"))
_COLUMN = 44
_END = """
# Findings that are known, until a day. `subject` and `host` are optional.
# [[mute]]
# check = "nic-mtu"
# subject = "mlx5_3"
# host = "gpu-17"
# reason = "ticket 4711: cable ordered"
# until = 2026-12-31

# Warnings of these checks fail.
# [severity]
# nic-mtu = "fail"
"""


def text(expectations: Expectations, learned: str) -> str:
    """The text of the file. `learned` says where its values are from."""
    # A host name may hold anything.
    origin = "".join(letter if letter.isprintable() else "?" for letter in learned)
    head = (
        f"# What a node should have: busbw check --expect FILE. {origin}\n"
        "# Every key may be deleted: then nothing is expected of it.\n"
    )
    tables = [_table_text(name, value) for name, value in _keys_given(expectations).items()]
    return "".join((head, *tables, _END))


def _keys_given(table: msgspec.Struct) -> dict[str, Any]:
    """The keys whose values are not the defaults."""
    values = {}
    for field in msgspec.structs.fields(table):
        value = getattr(table, field.name)
        is_default = field.default is not msgspec.NODEFAULT and value == field.default
        if value not in (None, [], {}) and not is_default:
            values[field.name] = value
    return values


def _table_text(name: str, value: Any) -> str:
    tables = value if isinstance(value, list) else [value]
    bodies = [_keys_given(table) for table in tables]
    head = f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
    parts = ["".join(_table_lines(name, head, body)) for body in bodies if body]
    return f"\n# {TABLES[name]}\n" + "\n".join(parts) if parts else ""


def _table_lines(name: str, head: str, body: Mapping[str, Any]) -> Iterator[str]:
    yield f"{head}\n"
    for key, value in body.items():
        comment = KEYS[f"{name}.{key}"]
        if f"{name}.{key}" in SIZES:
            comment = f"{gib(value)}: {comment}"
        entry = f"{key} = {_value_text(value)}"
        if len(entry) > _COLUMN:
            yield f"# {key}: {comment}\n"
            yield f"{entry}\n"
        else:
            yield f"{entry:{_COLUMN}}  # {comment}\n"


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_value_text, value))}]"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(value: str) -> str:
    """A basic string of TOML, in ASCII. Half of a surrogate pair becomes `?`."""
    return f'"{"".join(map(_escaped, value.encode("utf-8", "replace").decode()))}"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if 0x20 <= code < 0x7F:
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
