"""What an expectations file may hold.

Every key is optional: nothing is expected where it is missing.

Names say the unit: bytes, 10^9 bits per second (gbit_s), 10^9 bytes per second (gb_s), 10^9
transfers per second and lane (gt_s).
"""

from datetime import date
from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Text = Annotated[str, Meta(min_length=1)]
ALL_CHECKS = "*"  # of a mute
# One module of 32 is 3 %; kernels and firmware reserve less than 1 % more or less from one version
# to the next.
TOLERANCE = 0.02


class _SpecTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class ExpectedGpus(_SpecTable, frozen=True):
    """All GPUs of the node, which are alike in the keys that are given."""

    count: Count | None = None
    addresses: list[Text] = []  # as sysfs spells them
    model: Text | None = None
    memory_bytes: Count | None = None
    memory_tolerance: Share = TOLERANCE
    vbios: Text | None = None
    serials: list[Text] = []  # "gpu-7 1653723052734": of a host, in the order of its GPUs
    persistence: bool | None = None
    ecc: bool | None = None
    mig: bool | None = None
    nvlinks: Count | None = None
    nvlink_gb_s: Rate | None = None
    nvswitches: Count | None = None
    pcie_gt_s: Rate | None = None
    pcie_width: Count | None = None


class ExpectedPorts(_SpecTable, frozen=True):
    """A group of RDMA ports that are alike."""

    count: Count | None = None
    names: list[Text] = []
    link_layer: Text | None = None
    state: Text | None = None
    rate_gbit_s: Rate | None = None
    firmware_min: Text | None = None
    pcie_gt_s: Rate | None = None
    pcie_width: Count | None = None


class Interfaces(_SpecTable, frozen=True):
    """A group of network interfaces without RDMA that are alike."""

    count: Count | None = None
    names: list[Text] = []
    rate_gbit_s: Rate | None = None
    mtu: Count | None = None


class Cpus(_SpecTable, frozen=True):
    """CPUs, sockets and NUMA nodes."""

    sockets: Count | None = None
    online: Count | None = None
    numa_nodes: Count | None = None


class ExpectedMemory(_SpecTable, frozen=True):
    """The memory of the host."""

    ram_bytes: Count | None = None
    ram_tolerance: Share = TOLERANCE
    hugepages: Count | None = None


class Versions(_SpecTable, frozen=True):
    """The oldest and newest versions. A newest version may be a prefix: 570 allows every 570.x."""

    driver_min: Text | None = None
    driver_max: Text | None = None
    kernel_min: Text | None = None
    kernel_max: Text | None = None
    os: Text | None = None
    os_min: Text | None = None
    os_max: Text | None = None


class Storage(_SpecTable, frozen=True):
    """Local drives."""

    nvme: Count | None = None


class Mount(_SpecTable, frozen=True):
    """A file system that must be mounted."""

    path: Annotated[str, Meta(pattern="^/")]
    type: Text | None = None
    min_bytes: Count | None = None
    writable: bool | None = None


class Mute(_SpecTable, frozen=True):
    """Findings that are known.

    Those of a check, of one subject and on one host if these are given, until the end of a day. So
    is what other checks find of the same fault.
    """

    check: Annotated[str, Meta(min_length=1, description='`"*"` is all checks')]
    reason: Text
    until: date
    subject: str | None = None
    host: Text | None = None


class Expectations(_SpecTable, frozen=True):
    """All tables of a file."""

    gpus: ExpectedGpus = ExpectedGpus()
    ports: list[ExpectedPorts] = []
    interfaces: list[Interfaces] = []
    cpus: Cpus = Cpus()
    memory: ExpectedMemory = ExpectedMemory()
    versions: Versions = Versions()
    storage: Storage = Storage()
    mounts: list[Mount] = []
    mute: list[Mute] = []
    severity: dict[str, str] = {}
