"""What the machines of a run are made of: a plain graph without behaviour, read by `host` and reasoned about by `model`.

Rates are bytes per second in one direction. None means that the value could not be read; it is never a default.
"""

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. Its whole NVLink rate is `nvlink` x `nvlink_rate`; `pcie` is what its slot allows at full clock."""

    index: int  # NVML's
    name: str
    bus_id: str  # as sysfs spells it: "0000:1b:00.0"
    numa: int | None = None
    nvlink: int | None = None  # active links: 0 is a GPU without NVLink, None could not be read
    nvlink_rate: float | None = None  # one link, nominal
    pcie: float | None = None
    memory_bytes: int = 0
    sm: int = 0  # compute capability: 90 is 9.0; 0 could not be read
    nvls: bool | None = None  # NVLink SHARP: False where the hardware excludes it, None where only CUDA could tell
    pcie_gen: int | None = None  # now; GPUs that idle clock their link down
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None


class Nic(msgspec.Struct, frozen=True):
    """One network port that traffic can leave by. A bond is one Nic with the sum of its slaves, which are not listed again."""

    name: str  # RDMA device ("mlx5_0", with ":2" for a second port), or the interface where there is none
    kind: str  # "ib", "roce", "ethernet", or "rdma" for another RDMA link layer
    rate: float | None = None
    netdev: str = ""  # interface
    numa: int | None = None
    virtual: bool = False  # no hardware behind it (veth, bridge, tun): the rate its driver reports is made up
    up: bool = True
    mtu: int | None = None
    slaves: list[str] = []


class Host(msgspec.Struct, frozen=True):
    """One machine. `gpu_reason` says why GPUs are missing or incomplete; it is empty only when NVML answered for all of them."""

    hostname: str
    boot_id: str = ""
    kernel: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    gpu_reason: str = ""
    driver: str = ""  # NVIDIA driver's version
    congestion: str = ""  # TCP's congestion control where the reading process is: "cubic", "bbr"


class Topology(msgspec.Struct, frozen=True):
    """The machines of a run, in order of their first rank."""

    hosts: list[Host]
