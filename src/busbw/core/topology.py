"""The hardware of a run's hosts: read by `host`, evaluated by `model`.

Rates are bytes per second in one direction. None means that the value could not be read.
"""

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. Its total NVLink rate is `nvlink` x `nvlink_rate`; `pcie` is the rate of its slot at full clock."""

    index: int  # NVML's
    name: str
    bus_id: str  # as in sysfs: "0000:1b:00.0"
    numa: int | None = None
    nvlink: int | None = None  # active links: 0 without NVLink, None if unknown
    nvlink_rate: float | None = None  # one link, nominal
    pcie: float | None = None
    memory_bytes: int = 0
    sm: int = 0  # compute capability: 90 is 9.0; 0 if unknown
    nvls: bool | None = None  # NVLink SHARP: False if the hardware lacks it, None if only CUDA could tell
    pcie_gen: int | None = None  # current; idle GPUs reduce their link speed
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None


class Nic(msgspec.Struct, frozen=True):
    """One network port. A bond is one Nic with the sum of its slaves' rates; its slaves are not listed separately."""

    name: str  # RDMA device ("mlx5_0", with ":2" for a second port), or the interface if there is none
    kind: str  # "ib", "roce", "ethernet", or "rdma" for another RDMA link layer
    rate: float | None = None
    netdev: str = ""  # interface
    numa: int | None = None
    virtual: bool = False  # without hardware (veth, bridge, tun): its driver makes the rate up
    up: bool = True
    mtu: int | None = None
    slaves: list[str] = []


class Host(msgspec.Struct, frozen=True):
    """One machine. `gpu_reason` says why GPUs are missing; it is empty only if NVML could read all of them."""

    hostname: str
    boot_id: str = ""
    kernel: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    gpu_reason: str = ""
    driver: str = ""  # version of the NVIDIA driver
    congestion: str = ""  # TCP's congestion control in this process's namespace: "cubic", "bbr"


class Topology(msgspec.Struct, frozen=True):
    """The machines of a run, in order of their first rank."""

    hosts: list[Host]
