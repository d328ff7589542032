"""The hardware of a run's hosts: read by `host`, evaluated by `model`.

Rates are bytes per second in one direction. None means that the value could not be read.
"""

from typing import Annotated

import msgspec
from msgspec import Meta


class Gpu(msgspec.Struct, frozen=True):
    """One GPU."""

    index: Annotated[int, Meta(description="NVML index")]
    name: str
    bus_id: Annotated[str, Meta(description='as sysfs spells it: "0000:1b:00.0"')]
    numa: int | None = None
    nvlink: Annotated[
        int | None, Meta(description="active links; 0: a GPU without NVLink; None: not readable")
    ] = None
    nvlink_rate: Annotated[
        float | None, Meta(description="nominal rate of one link in bytes per second")
    ] = None
    pcie: Annotated[float | None, Meta(description="rate of its slot at full clock")] = None
    memory_bytes: int = 0
    sm: Annotated[int, Meta(description="compute capability: 90 is 9.0; 0: not readable")] = 0
    nvls: Annotated[
        bool | None,
        Meta(description="NVLink SHARP: False if the hardware lacks it, None if only CUDA knows"),
    ] = None
    pcie_gen: Annotated[
        int | None, Meta(description="current generation; an idle GPU lowers it")
    ] = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None


class Nic(msgspec.Struct, frozen=True):
    """One network port.

    A bond is one Nic with the sum of its slaves' rates; its slaves are not listed separately.
    """

    name: Annotated[
        str,
        Meta(
            description=(
                'RDMA device ("mlx5_0", with ":2" for a second port), or the interface where there'
                " is none"
            )
        ),
    ]
    kind: Annotated[
        str, Meta(description='"ib", "roce", "ethernet", or "rdma" for another RDMA link layer')
    ]
    rate: float | None = None
    netdev: Annotated[str, Meta(description="interface")] = ""
    numa: int | None = None
    virtual: Annotated[
        bool,
        Meta(
            description=(
                "not hardware (veth, bridge, tun); the rate that its driver reports is not real"
            )
        ),
    ] = False
    up: bool = True
    mtu: int | None = None
    slaves: list[str] = []
    in_lab: Annotated[
        bool, Meta(description="on a host of `busbw lab`: the rate is the one given to the lab")
    ] = False


class Host(msgspec.Struct, frozen=True):
    """One machine."""

    hostname: str
    boot_id: str = ""
    kernel: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    gpu_reason: Annotated[
        str, Meta(description="why GPUs are missing; empty only if NVML could read all of them")
    ] = ""
    driver: Annotated[str, Meta(description="NVIDIA driver's version")] = ""
    congestion: Annotated[
        str, Meta(description="TCP congestion control of the reading process, such as cubic or bbr")
    ] = ""
    running: Annotated[
        int,
        Meta(
            description=(
                "processes that ran or waited for a processor when the ranks had started, these"
                " included"
            )
        ),
    ] = 0


class Topology(msgspec.Struct, frozen=True):
    """The machines of a run, in order of their first rank."""

    hosts: list[Host]
