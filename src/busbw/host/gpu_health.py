"""The condition of GPUs as NVML reports it. Values that NVML did not give are None, never 0.

`nvml_health` reads it; checks judge it. A snapshot holds it as JSON.
"""

import msgspec

SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH


class Process(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process with memory on a GPU.

    In a container, NVML may give the pid of another namespace, and no name can be found.
    """

    pid: int
    used_bytes: int | None = None
    name: str = ""


class FabricState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a GPU stands with the fabric of NVSwitches.

    `state` and `status` are NVML's numbers; `cluster` is '' if it has none.
    """

    state: int
    status: int
    cluster: str = ""
    clique: int = 0
    health_mask: int = 0


class Nvlink(msgspec.Struct, frozen=True, omit_defaults=True):
    """One NVLink.

    `errors` are counts since the driver was loaded, by name; those that the driver lacks are
    absent.
    """

    number: int
    active: bool
    remote: int | None = None
    version: int | None = None
    speed_mbps: int | None = None
    errors: dict[str, int] = {}


class GpuHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU. Clocks are in MHz, temperatures in degrees Celsius, power in milliwatts."""

    index: int
    bus_id: str = ""  # as sysfs spells it: "0000:1b:00.0"
    name: str = ""
    error: str = ""  # why NVML cannot read the GPU at all
    unsupported: tuple[str, ...] = ()  # fields that this GPU, driver or library does not have
    failed: dict[str, str] = {}  # NVML's error for the other fields without a value
    vbios: str | None = None
    serial: str | None = None  # of the board; GeForce cards have none
    sm: int | None = None  # compute capability: 90 is 9.0
    memory_bytes: int | None = None
    used_bytes: int | None = None  # without what the driver reserves
    persistence: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    # ECC errors since the driver was loaded, by location: dram and sram
    uncorrected: dict[str, int] = {}
    uncorrected_ever: dict[str, int] = {}  # the same of the GPU's life
    sram_exceeded: bool | None = None
    # rows after corrected and after uncorrected errors; whether one is pending, one failed
    remapped: tuple[int, int, int, int] | None = None
    retired_pending: bool | None = None
    reasons: int | None = None  # bits of core/clock_reasons.csv
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    memory_mhz: int | None = None
    memory_max_mhz: int | None = None
    app_mhz: int | None = None
    app_default_mhz: int | None = None
    boost_mhz: int | None = None  # the largest clock that the owner of the machine allows
    temperature_c: int | None = None
    gpu_max_c: int | None = None
    slowdown_c: int | None = None
    margin_c: int | None = None  # degrees left until clocks are reduced; Hopper and later
    memory_c: int | None = None  # the hottest of its memory
    memory_max_c: int | None = None  # the largest temperature at which the memory may work
    # On Hopper and later, the margin_c at which clocks are reduced for the memory.
    memory_margin_c: int | None = None
    power_limit_mw: int | None = None
    power_default_mw: int | None = None
    compute_mode: int | None = None
    processes: tuple[Process, ...] | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    fabric: FabricState | None = None
    links: tuple[Nvlink, ...] | None = None  # () without NVLink
    pcie_replays: int | None = None
    # NVML's number of what the driver asks for, 0 for nothing; drivers from 570 on have it.
    recovery_action: int | None = None
    inforom: bool | None = None  # whether the checksum of the GPU's configuration memory is right

    @property
    def label(self) -> str:
        """The GPU's name in messages: `GPU 2`."""
        return f"GPU {self.index}"

    @property
    def active(self) -> tuple[Nvlink, ...]:
        return tuple(link for link in self.links or () if link.active)

    @property
    def switched(self) -> bool:
        """Whether a link leads to an NVSwitch."""
        return any(link.remote == SWITCH for link in self.links or ())


class NvmlGpus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All GPUs of NVML; `reason` says why there are none.

    `peers` are (GPU, GPU, NVML's P2P status of reads) of each pair.
    """

    driver: str = ""
    cuda: int | None = None  # the newest CUDA of the driver: 12080 is 12.8
    gpus: tuple[GpuHealth, ...] = ()
    peers: tuple[tuple[int, int, int], ...] = ()
    reason: str = ""
