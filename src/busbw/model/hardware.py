"""GPUs: their NVLink constants (model/gpus.csv, model/bridged_gpus.csv), those without NVLink
(model/pcie_gpus.csv), and AMD's (model/xgmi_gpus.csv).

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
from busbw.core.table_file import rows
from busbw.core.topology import Gpu
from busbw.model.fabric import gb

# The rates that NCCL plans with for 16 lanes, by generation: NCCL src/graph/topo.h.
NCCL_PCI = {3: 12e9, 4: 24e9, 5: 48e9, 6: 96e9}
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
    sm: int
    pcie_gen: int
    source: str


@cache
def generations() -> tuple[Generation, ...]:
    """All GPUs with NVLink."""
    return rows("model/gpus.csv", Generation, lists=("names",))


@dataclass(frozen=True, slots=True)
class PcieGpu:
    """GPUs without NVLink. `lanes` are those of the GPU's slot, or of its NICs if it has none;
    `peers` says whether they reach each other's memory.
    """

    name: str
    sm: int
    pcie_gen: int
    lanes: int = 16
    peers: bool = True


CARDS = frozenset({"pcie", "nvl"})  # words in the name of a card whose family has NVLink


@cache
def pcie_gpus() -> dict[str, PcieGpu]:
    """All GPUs without NVLink, by name."""
    return {row.name: row for row in rows("model/pcie_gpus.csv", PcieGpu)}


def reaches_peers(word: str) -> bool:
    """Whether GPUs of this name reach each other's memory."""
    row = pcie_gpus().get(word)
    return row is None or row.peers


@dataclass(frozen=True, slots=True)
class BridgedGpus:
    """GPUs that NVLink joins each to each other, up to `most` of them, without a switch. Each has
    `links` of those of its `family`.
    """

    name: str
    family: str
    links: int
    most: int


@cache
def bridged_gpus() -> dict[str, BridgedGpus]:
    """All GPUs that NVLink joins without a switch, by name."""
    return {row.name: row for row in rows("model/bridged_gpus.csv", BridgedGpus)}


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


@cache
def xgmi_gpus() -> tuple[Xgmi, ...]:
    """All of AMD's GPUs of the table."""
    return rows("model/xgmi_gpus.csv", Xgmi)


def xgmi(gcn: str) -> Xgmi | None:
    """The row for AMD's architecture as RCCL's topology names it, such as `gfx942:sramecc+`;
    None if there is none.
    """
    return next((row for row in xgmi_gpus() if gcn_name(gcn).startswith(row.gcn)), None)


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
    for row in generations():
        same_links = gpu.nvlink is not None and 0 < gpu.nvlink <= row.links
        if not same_links or gpu.nvlink_rate != row.link_rate:
            continue
        if any(name in words for name in row.names):
            return row
    return None


@cache
def by_name(word: str) -> Generation | None:
    """The row that names this GPU, such as `h100`; None if there is none."""
    return next((row for row in generations() if word.upper() in row.names), None)


def gpu_word(name: str) -> str:
    """`h100` for a name such as `NVIDIA H100 80GB HBM3` or `H100`; empty for a GPU that no table
    of GPUs has, and for a card, whose links its name does not say.
    """
    words = _words(name)
    joined = "".join(words)
    for known in [*_with_nvlink(), *pcie_gpus()]:
        if known in words:
            return "" if is_card(name) else known
    of_several_words = [known for known in pcie_gpus() if known.startswith("rtx")]
    return next((known for known in of_several_words if known in joined), "")


def is_card(name: str) -> bool:
    """Whether the GPU is a card of a family with NVLink, such as `NVIDIA A100 80GB PCIe` or
    `NVIDIA H200 NVL`: it has PCIe alone, or NVLink bridges to one or three others (NVIDIA's product
    briefs of A100 PCIe, H100 NVL and H200 NVL).
    """
    words = _words(name)
    return not CARDS.isdisjoint(words) and any(known in words for known in _with_nvlink())


def is_another_gpu(name: str, other: str) -> bool:
    """Whether two names are of GPUs with other links; False if no table has one of them."""
    words = gpu_word(name), gpu_word(other)
    return words[0] != words[1] if all(words) else any(words) and is_card(name) != is_card(other)


def card_word(name: str) -> str:
    """`a100pcie` for a card's name, such as `NVIDIA A100 80GB PCIe`; empty for other GPUs."""
    words = _words(name)
    possible = (
        f"{gpu}{card}" for gpu in _with_nvlink() for card in CARDS if {gpu, card} <= {*words}
    )
    return next(possible, "") if is_card(name) else ""


@cache
def _with_nvlink() -> tuple[str, ...]:
    """The names of GPUs with NVLink in lower case."""
    return tuple(name.lower() for row in generations() for name in row.names)


def _words(name: str) -> list[str]:
    return name.lower().replace("-", " ").split()


def of_links(sm: int, links: int) -> Generation | None:
    """The row for a compute capability and a number of links, of which some may be down; None if
    there is none.
    """
    rows = [row for row in generations() if row.sm // 10 == sm // 10 and links <= row.links]
    return min(rows, key=lambda row: (row.sm != sm, row.links - links), default=None)
