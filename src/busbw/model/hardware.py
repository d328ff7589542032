"""The table of GPUs' NVLink constants and their sources.

A GPU is matched by name, number of links and the link rate that was read, not by NVML's link
version: some drivers report 5.0 for Hopper, and export variants differ from their family only in
links.

`plan` gives bounds with NCCL's own constants, which exclude packet headers and checksums, instead
of nominal rates. In NCCL's tables, data is about 82 % of NVLink's nominal rate and 76 % of PCIe's;
NICs count with their nominal rate.
"""

from dataclasses import dataclass
from functools import cache

from busbw.core.sizes import counted
from busbw.core.topology import Gpu
from busbw.model.fabric import gb

NCCL_TOPO = "NCCL src/graph/topo.h, bandwidth constants (GB/s)"

# The rates that NCCL plans with for 16 lanes, by generation: NCCL src/graph/topo.h.
NCCL_PCI = {3: 12e9, 4: 24e9, 5: 48e9, 6: 96e9}
RCCL_TOPO = "RCCL src/graph/topo.h, ncclTopoXGMISpeed (GB/s)"
_GCN_NUMBERS = {"910": "90a"}  # of older RCCL; others are the name without gfx


@dataclass(frozen=True, slots=True)
class Generation:
    """GPUs with the same links.

    Rates are bytes per second of one link in one direction; `planned` is NCCL's constant. `sm` is
    the compute capability times 10, `pcie_gen` the generation of its 16 lanes.
    """

    names: tuple[str, ...]  # as a word of NVML's device name
    links: int
    link_rate: float
    planned: float
    source: str
    sm: int
    pcie_gen: int


GENERATIONS: tuple[Generation, ...] = (
    Generation(
        ("P100",),
        4,
        20e9,
        18e9,
        f"NVIDIA P100 data sheet: 160 GB/s both ways; {NCCL_TOPO} SM60",
        60,
        3,
    ),
    Generation(
        ("V100",),
        6,
        25e9,
        20e9,
        f"NVIDIA V100 data sheet: 300 GB/s both ways; {NCCL_TOPO} SM70",
        70,
        3,
    ),
    Generation(
        ("A100",),
        12,
        25e9,
        20e9,
        f"NVIDIA A100 data sheet: 600 GB/s both ways; {NCCL_TOPO} SM80",
        80,
        4,
    ),
    Generation(
        ("A800",),
        8,
        25e9,
        20e9,
        f"NVIDIA A800 data sheet: 400 GB/s both ways; {NCCL_TOPO} SM80",
        80,
        4,
    ),
    Generation(
        ("H800",),
        8,
        25e9,
        20.6e9,
        f"NVIDIA H800 data sheet: 400 GB/s both ways; {NCCL_TOPO} SM90",
        90,
        5,
    ),
    Generation(
        ("H100", "H200", "H20", "GH200"),
        18,
        25e9,
        20.6e9,
        f"NVIDIA H100 data sheet: 900 GB/s both ways; {NCCL_TOPO} SM90",
        90,
        5,
    ),
    Generation(
        ("B200", "GB200"),
        18,
        50e9,
        40.1e9,
        f"NVIDIA B200 data sheet: 1.8 TB/s both ways; {NCCL_TOPO} SM100",
        100,
        5,
    ),
    Generation(
        ("B300", "GB300"),
        18,
        50e9,
        40.1e9,
        f"NVIDIA DGX B300 data sheet: 1.8 TB/s both ways, PCIe 6; {NCCL_TOPO} SM100",
        103,
        6,
    ),
    Generation(
        ("A6000",),
        4,
        14.0625e9,
        12e9,
        f"NVIDIA RTX A6000 data sheet: 112.5 GB/s both ways over a bridge; {NCCL_TOPO} SM86",
        86,
        4,
    ),
)


@dataclass(frozen=True, slots=True)
class PcieGpu:
    """GPUs without NVLink. `lanes` are those of the GPU's slot, or of its NICs if it has none."""

    sm: int
    pcie_gen: int
    source: str
    lanes: int = 16


CARDS = frozenset({"pcie", "nvl"})  # words in the name of a card whose family has NVLink
_OF_NVLINK = tuple(name.lower() for row in GENERATIONS for name in row.names)
RTX_PRO = "rtxpro6000"  # three words of the device's name
PCIE_GPUS = {
    "l40s": PcieGpu(89, 4, "NVIDIA L40S data sheet: PCIe 4 x16"),
    "l40": PcieGpu(89, 4, "NVIDIA L40 data sheet: PCIe 4 x16"),
    "l4": PcieGpu(89, 4, "NVIDIA L4 data sheet: PCIe 4 x16"),
    "a10": PcieGpu(86, 4, "NVIDIA A10 data sheet: PCIe 4 x16"),
    "t4": PcieGpu(75, 3, "NVIDIA T4 data sheet: PCIe 3 x16"),
    RTX_PRO: PcieGpu(120, 5, "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet: PCIe 5 x16"),
    "rtx4090": PcieGpu(89, 4, "NVIDIA GeForce RTX 4090: PCIe 4 x16"),
    "rtx5090": PcieGpu(120, 5, "NVIDIA GeForce RTX 5090: PCIe 5 x16"),
    "a100pcie": PcieGpu(80, 4, "NVIDIA A100 80GB PCIe product brief: PCIe 4 x16"),
    "h100pcie": PcieGpu(90, 5, "NVIDIA H100 PCIe product brief: PCIe 5 x16"),
    "h100nvl": PcieGpu(90, 5, "NVIDIA H100 NVL product brief: PCIe 5 x16"),
    "h200nvl": PcieGpu(90, 5, "NVIDIA H200 NVL product brief: PCIe 5 x16"),
    "gb10": PcieGpu(121, 5, "NVIDIA DGX Spark: ConnectX-7 over two PCIe 5 x4", lanes=8),
}


@dataclass(frozen=True, slots=True)
class Bridged:
    """GPUs that NVLink joins each to each other, up to `most` of them, without a switch. Each has
    `links` of those of its `family`.
    """

    family: str
    links: int
    most: int
    source: str


@dataclass(frozen=True, slots=True)
class Pair:
    """The links between any two GPUs of a host, and the rates of one of them."""

    kind: str
    links: int
    rate: float
    planned: float

    def text(self, gpus: int) -> str:
        """`xGMI, 7 links x 64 GB/s`: those of one GPU to `gpus` - 1 others."""
        return f"{self.kind}, {counted(self.links * (gpus - 1), 'link')} x {gb(self.rate)} GB/s"


BRIDGED = {
    "gh200": Bridged("gh200", 18, 4, "NVIDIA GH200 NVL2, and hosts of four as HPE Cray EX254n"),
    "h100nvl": Bridged("h100", 12, 2, "NVIDIA H100 NVL product brief: 600 GB/s both ways"),
    "h200nvl": Bridged("h200", 18, 4, "NVIDIA H200 NVL product brief: 900 GB/s both ways"),
}
GEFORCE = ("rtx4090", "rtx5090")


@dataclass(frozen=True, slots=True)
class Xgmi:
    """AMD's GPUs with the same links, by the beginning of the architecture's name.

    `planned` is RCCL's constant for a link.
    """

    gcn: str
    name: str
    link_rate: float
    planned: float
    source: str


XGMI: tuple[Xgmi, ...] = (
    Xgmi(
        "gfx908",
        "MI100",
        46e9,
        24e9,
        f"ROCm's documentation of MI100: 23 GT/s, 16 lanes; {RCCL_TOPO}",
    ),
    Xgmi(
        "gfx90a",
        "MI200",
        50e9,
        36e9,
        f"ROCm's documentation of MI250: 25 GT/s, 16 lanes; {RCCL_TOPO}",
    ),
    Xgmi(
        "gfx94",
        "MI300",
        64e9,
        48e9,
        f"Linux drivers/gpu/drm/amd/amdgpu/amdgpu_xgmi.c: 32 GT/s, 16 lanes; {RCCL_TOPO}",
    ),
    Xgmi(
        "gfx95", "MI350", 76.8e9, 48e9, f"AMD CDNA 4 white paper: 153.6 GB/s both ways; {RCCL_TOPO}"
    ),
)


def xgmi(gcn: str) -> Xgmi | None:
    """The row for AMD's architecture as RCCL's topology names it, such as `gfx942:sramecc+`;
    None if there is none.
    """
    return next((row for row in XGMI if gcn_name(gcn).startswith(row.gcn)), None)


def gcn_name(gcn: str) -> str:
    """`gfx942` for RCCL's `gfx942:sramecc+:xnack-` or `942`."""
    name = gcn.partition(":")[0].lower()[:20]
    if name.isalnum() and not name.startswith("gfx"):
        return f"gfx{_GCN_NUMBERS.get(name, name)}"
    return name


def generation(gpu: Gpu) -> Generation | None:
    """The row that matches the GPU's name, link rate and number of links, of which some may be
    down; None if there is none.
    """
    words = gpu.name.upper().replace("-", " ").split()
    for row in GENERATIONS:
        same_links = gpu.nvlink is not None and 0 < gpu.nvlink <= row.links
        if not same_links or gpu.nvlink_rate != row.link_rate:
            continue
        if any(name in words for name in row.names):
            return row
    return None


@cache
def by_name(word: str) -> Generation | None:
    """The row that names this GPU, such as `h100`; None if there is none."""
    return next((row for row in GENERATIONS if word.upper() in row.names), None)


def gpu_word(name: str) -> str:
    """`h100` for a name such as `NVIDIA H100 80GB HBM3` or `H100`; empty for a GPU that no table
    of GPUs has, and for a card, whose links its name does not say.
    """
    words = _words(name)
    joined = "".join(words)
    for known in [*_OF_NVLINK, *PCIE_GPUS]:
        if known in words:
            return "" if is_card(name) else known
    return next((known for known in (RTX_PRO, *GEFORCE) if known in joined), "")


def is_card(name: str) -> bool:
    """Whether the GPU is a card of a family with NVLink, such as `NVIDIA A100 80GB PCIe` or
    `NVIDIA H200 NVL`: it has PCIe alone, or NVLink bridges to one or three others (NVIDIA's product
    briefs of A100 PCIe, H100 NVL and H200 NVL).
    """
    words = _words(name)
    return not CARDS.isdisjoint(words) and any(known in words for known in _OF_NVLINK)


def _words(name: str) -> list[str]:
    return name.lower().replace("-", " ").split()


def of_links(sm: int, links: int) -> Generation | None:
    """The row for a compute capability and a number of links, of which some may be down; None if
    there is none.
    """
    rows = [row for row in GENERATIONS if row.sm // 10 == sm // 10 and links <= row.links]
    return min(rows, key=lambda row: (row.sm != sm, row.links - links), default=None)
