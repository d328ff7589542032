"""The table of hosts in words: which GPUs may be named, how many of them share NVLink or PCIe, and
what such a host usually has besides.
"""

from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.model.hardware import BRIDGED, GEFORCE

MESH_GPUS = range(2, 9)  # of V100: hosts with a mesh of NVLinks have up to 8


@dataclass(frozen=True, slots=True)
class Usual:
    """What hosts of one GPU usually have.

    `gbit` is the rate of a NIC, of which each GPU has one, or `nics` a host; 0 if there is no usual
    one. `most` is how many GPUs a host has at most, or an NVLink domain if `racks`. `source` is
    the vendor's host that this row describes.
    """

    word: str
    gbit: int
    cpu: str
    source: str
    most: int = 8
    racks: bool = False
    nics: int = 0

    @property
    def example(self) -> str:
        """The largest system, such as `h100x8` or `gb200nvl72`."""
        return f"{self.word}{'nvl' if self.racks else 'x'}{self.most}"


USUAL: tuple[Usual, ...] = (
    Usual("v100", 100, "intel", "NVIDIA DGX-2: 16 V100, NVSwitch, 8 x 100 Gbit/s", most=16, nics=8),
    Usual(
        "a100",
        200,
        "amd",
        "NVIDIA DGX A100: 8 x HDR 200 Gbit/s, AMD EPYC 7742; HGX A100 has 16 at most",
        most=16,
    ),
    Usual("a800", 200, "amd", "as DGX A100, with 8 NVLinks"),
    Usual("h100", 400, "intel", "NVIDIA DGX H100: 8 x NDR 400 Gbit/s, Intel Xeon 8480C"),
    Usual("h200", 400, "intel", "NVIDIA DGX H200: 8 x NDR 400 Gbit/s, Intel Xeon 8480C"),
    Usual("h800", 400, "intel", "as DGX H100, with 8 NVLinks"),
    Usual("h20", 400, "intel", "HGX H20: 18 NVLinks as H100"),
    Usual(
        "gh200",
        200,
        "arm",
        "HPE Cray EX254n: four GH200, each with 200 Gbit/s; single ones and pairs have other NICs",
        most=4,
    ),
    Usual("a100pcie", 0, "amd", "servers of up to 8 A100 PCIe; their NICs vary"),
    Usual("h100pcie", 0, "intel", "servers of up to 8 H100 PCIe; their NICs vary"),
    Usual("h100nvl", 0, "intel", "servers of up to 8 H100 NVL; their NICs vary"),
    Usual("h200nvl", 0, "intel", "servers of up to 8 H200 NVL; their NICs vary"),
    Usual(
        "b200",
        400,
        "intel",
        "NVIDIA DGX B200 User Guide: 8 x ConnectX-7 400 Gbit/s, Intel Xeon 8570",
    ),
    Usual(
        "b300", 800, "intel", "NVIDIA DGX B300: 8 x ConnectX-8 800 Gbit/s, PCIe 6, Intel Xeon 6776P"
    ),
    Usual(
        "gb200",
        400,
        "arm",
        "NVIDIA GB200 NVL72: 72 GPUs in one NVLink domain, 4 ConnectX-7 a tray of 4 GPUs",
        most=72,
        racks=True,
    ),
    Usual(
        "gb300",
        800,
        "arm",
        "NVIDIA GB300 NVL72: 72 GPUs in one NVLink domain, 4 ConnectX-8 a tray of 4 GPUs",
        most=72,
        racks=True,
    ),
    Usual("l40s", 0, "intel", "servers of up to 10 L40S on PCIe; their NICs vary", most=10),
    Usual("l40", 0, "intel", "servers of up to 10 L40 on PCIe; their NICs vary", most=10),
    Usual("l4", 0, "intel", "servers of up to 8 L4 on PCIe; their NICs vary"),
    Usual("a10", 0, "intel", "servers of up to 8 A10 on PCIe; their NICs vary"),
    Usual("t4", 0, "intel", "servers of up to 8 T4 on PCIe; their NICs vary"),
    Usual(
        "rtxpro6000", 0, "intel", "NVIDIA RTX PRO Server: up to 8 RTX PRO 6000 Blackwell; NICs vary"
    ),
    Usual("rtx4090", 0, "amd", "workstations and servers of up to 8 RTX 4090; NICs vary"),
    Usual("rtx5090", 0, "amd", "workstations and servers of up to 8 RTX 5090; NICs vary"),
    Usual(
        "gb10",
        200,
        "arm",
        "NVIDIA DGX Spark: one GB10, ConnectX-7 with two ports and 200 Gbit/s in all",
        most=1,
    ),
)
BY_WORD = {row.word: row for row in USUAL}
THROUGH_CPUS = (
    "PCIe: bounds take every GPU to reach every other at its slot's rate; GPUs share switches, CPUs"
    " and sockets, and on public hosts 4 reach 63 % and 8 half of what NCCL plans with"
)
BETWEEN_BRIDGES = (
    "NVLink bridges join up to {} of these cards. Between others data takes PCIe, which is counted"
    " for all"
)
OPTIONAL_BRIDGES = "NVLink bridges, where pairs of these cards have them, are not counted"
NO_P2P = (
    "PCIe: GeForce cards do not reach each other's memory, so data passes through the host's. On"
    " public hosts 2 to 8 of them reach 59 % of what NCCL plans with, which bounds do not count"
)
# GPUs whose links are public, but not what NCCL expects of them.
NOT_IN_NCCL = {"vr200": "Rubin's NVLink 6 of 3.6 TB/s"}


def notes_over_pcie(word: str, gpus: int) -> tuple[str, ...]:
    """What an answer about cards that exchange data over PCIe should say."""
    if word in GEFORCE:
        return (NO_P2P,) if gpus > 1 else ()
    notes = [THROUGH_CPUS] if gpus > 2 else []
    if word in BRIDGED:
        notes.append(BETWEEN_BRIDGES.format(BRIDGED[word].most))
    if word.endswith("pcie"):
        notes.append(OPTIONAL_BRIDGES)
    return tuple(notes)


def refuse_unknown_links(text: str, word: str) -> None:
    """UsageError for GPUs that NCCL has no constants for."""
    if word in NOT_IN_NCCL:
        raise UsageError(
            f"--system {text}: NCCL 2.30 has no constants for {NOT_IN_NCCL[word]}",
            "--system gb300nvl72, the nearest that is known",
        )


def refuse_unsold(text: str, row: Usual, gpus: int, *, rack: bool) -> None:
    """UsageError for more GPUs than a host or a rack of them has, for racks of GPUs that have
    none, and for V100 in a mesh.
    """
    name = row.word.upper()
    if rack and not row.racks:
        card = BY_WORD.get(f"{row.word}nvl")
        raise UsageError(
            f"--system {text}: NVLink joins {name} within a host, not in a rack",
            f"--system {f'{card.word}x{gpus}' if card else row.example}",
        )
    if not 1 <= gpus <= row.most:
        place = "an NVLink domain" if row.racks else "a host"
        most = f"at most {row.most}" if row.most > 1 else "one"
        raise UsageError(
            f"--system {text}: {place} has {most} {name}",
            f"--system {row.example}, and --nodes for several",
        )
    if row.word == "v100" and gpus in MESH_GPUS:
        raise UsageError(
            f"--system {text}: a mesh of NVLinks joins up to 8 V100, which is not modelled",
            f"--system {row.example}, a DGX-2 with NVSwitch",
        )
