"""Hosts in words (model/gpu_hosts.csv): which GPUs may be named, how many of them share NVLink or
PCIe, and what such a host usually has besides.
"""

from dataclasses import dataclass
from functools import cache

from busbw.core.errors import UsageError
from busbw.core.table_file import rows
from busbw.model.hardware import bridged_gpus, reaches_peers

MESH_GPUS = range(2, 9)  # of V100: hosts with a mesh of NVLinks have up to 8


@dataclass(frozen=True, slots=True)
class UsualHost:
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


@cache
def gpu_hosts() -> dict[str, UsualHost]:
    """All hosts of the table, by the word of their GPU."""
    return {row.word: row for row in rows("model/gpu_hosts.csv", UsualHost)}


THROUGH_CPUS = (
    "PCIe: bounds take every GPU to reach every other at its slot's rate; GPUs share switches, CPUs"
    " and sockets, and on public hosts 4 reach 63 % and 8 half of what NCCL plans with"
)
BETWEEN_BRIDGES = (
    "NVLink bridges join up to {} of these cards. Between others data takes PCIe, which is counted"
    " for all"
)
OPTIONAL_BRIDGES = (
    "NVLink bridges, where pairs of these cards have them, are not counted. A pair with them is"
    " --system {}x2"
)
NO_P2P = (
    "PCIe: GeForce cards do not reach each other's memory, so data passes through the host's. On"
    " public hosts 2 to 8 of them reach 59 % of what NCCL plans with, which bounds do not count"
)
# GPUs whose links are public, but not what NCCL expects of them.
NOT_IN_NCCL = {"vr200": "Rubin's NVLink 6 of 3.6 TB/s"}


def notes_over_pcie(word: str, gpus: int) -> tuple[str, ...]:
    """What an answer about cards that exchange data over PCIe should say."""
    if not reaches_peers(word):
        return (NO_P2P,) if gpus > 1 else ()
    notes = [THROUGH_CPUS] if gpus > 2 else []
    if word in bridged_gpus():
        notes.append(BETWEEN_BRIDGES.format(bridged_gpus()[word].most))
    if word.endswith("pcie"):
        family = word.removesuffix("pcie")
        card = f"{family}nvl"
        notes.append(OPTIONAL_BRIDGES.format(card if card in bridged_gpus() else family))
    return tuple(notes)


def refuse_unknown_links(text: str, word: str) -> None:
    """UsageError for GPUs that NCCL has no constants for."""
    if word in NOT_IN_NCCL:
        raise UsageError(
            f"--system {text}: NCCL 2.30 has no constants for {NOT_IN_NCCL[word]}",
            "--system gb300nvl72, the nearest that is known",
        )


def refuse_unsold(text: str, row: UsualHost, gpus: int, *, rack: bool) -> None:
    """UsageError for more GPUs than a host or a rack of them has, for racks of GPUs that have
    none, and for V100 in a mesh.
    """
    name = row.word.upper()
    if rack and not row.racks:
        card = gpu_hosts().get(f"{row.word}nvl")
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
