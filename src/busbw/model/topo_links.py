"""How the GPUs of a topology file are joined, by the targets of their links: over switches, each to
each other, or in some other way.

NCCL tells targets apart by their PCI class: 0x068000 is an NVSwitch, 0x068001 a CPU (IBM Power),
0x03 and 0x12 a GPU. A target that is not in the file and has no class counts as a switch, as in
NCCL. Source: NCCL src/graph/topo.cc and xml.cc, RCCL's ncclTopoAddXGMI.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from busbw.core.errors import UsageError
from busbw.core.sizes import counted
from busbw.model.hardware import gcn_name

CPU = "0x068001"
GPU = ("0x03", "0x12")
DESCRIBE = "describe the host with --system, like --system a100x2"
MEASURE = "measure it instead: busbw run all_reduce"
NAMED = 4  # GPUs of a message by their address; others are counted


@dataclass(slots=True)
class TopoGpu:
    """A GPU of the file.

    `gcn` is AMD's name of its architecture, '' for NVIDIA's; `links` are (target, count, class of
    the target).
    """

    bus: str = ""
    sm: int = 0
    gcn: str = ""
    gen: int = 4
    lanes: int = 16
    links: list[tuple[str, int, str]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(count for _, count, _ in self.links)

    @property
    def traits(self) -> tuple[str, ...]:
        """What the GPUs of a host must have in common, in words."""
        capability = f"compute capability {self.sm / 10:g}"
        return (
            gcn_name(self.gcn) if self.gcn else capability,
            counted(self.total, "xGMI link" if self.gcn else "NVLink"),
            f"PCIe {self.gen} x{self.lanes}",
        )


@dataclass(frozen=True, slots=True)
class LinkLayout:
    """The links of every GPU: `links` is their number, `to_each` how many go to each other GPU.

    `to_each` is 0 over switches, and None where the numbers differ.
    """

    links: int
    to_each: int | None


def refuse_unlike(gpus: Sequence[TopoGpu], name: str) -> None:
    """UsageError if the GPUs differ; it says which differ from most, and in what."""
    kinds = Counter(gpu.traits for gpu in gpus)
    if len(kinds) == 1:
        return
    usual, count = kinds.most_common(1)[0]
    unlike = next(gpu for gpu in gpus if gpu.traits != usual)
    same = [gpu.bus[:20] for gpu in gpus if gpu.traits == unlike.traits]
    more = f" and {len(same) - NAMED} more" if len(same) > NAMED else ""
    differing = [
        (own, other) for own, other in zip(unlike.traits, usual, strict=True) if own != other
    ]
    own_text = ", ".join(own for own, _ in differing)
    usual_text = ", ".join(other for _, other in differing)
    raise UsageError(
        f"{name}: the GPUs differ: {', '.join(same[:NAMED])}{more}"
        f" {'has' if len(same) == 1 else 'have'} {own_text},"
        f" {counted(count, 'other')} {'has' if count == 1 else 'have'} {usual_text}",
        MEASURE if unlike.gcn else DESCRIBE,
    )


def analyze_links(gpus: Sequence[TopoGpu], kind: str, name: str) -> LinkLayout:
    """How GPUs with equally many links are joined. `kind` is NVLink or xGMI.

    UsageError where links end at a CPU, at the GPU itself or outside the file, or where they leave
    GPUs apart: then the path between these GPUs is not known.
    """
    hint = MEASURE if gpus[0].gcn else DESCRIBE
    by_bus = {gpu.bus: number for number, gpu in enumerate(gpus) if gpu.bus}
    peers = [_peers(gpu, by_bus, kind, name) for gpu in gpus]
    if not any(peers):
        return LinkLayout(gpus[0].total, 0)
    for gpu, peers_of_gpu in zip(gpus, peers, strict=True):
        if sum(peers_of_gpu.values()) != gpu.total:
            raise UsageError(f"{name}: {kind}s of GPU {gpu.bus} end at GPUs and at switches", hint)
    parts = _parts(peers)
    if len(parts) > 1:
        sizes = ", ".join(str(len(part)) for part in parts)
        raise UsageError(
            f"{name}: {kind} joins the {len(gpus)} GPUs in {len(parts)} groups ({sizes}), and busbw"
            " has no model of the path between these",
            hint,
        )
    counts = {count for peers_of_gpu in peers for count in peers_of_gpu.values()}
    complete = all(len(peers_of_gpu) == len(gpus) - 1 for peers_of_gpu in peers)
    return LinkLayout(gpus[0].total, counts.pop() if complete and len(counts) == 1 else None)


def _peers(gpu: TopoGpu, by_bus: dict[str, int], kind: str, name: str) -> dict[int, int]:
    """Links to each other GPU, by its number."""
    peers: dict[int, int] = {}
    hint = MEASURE if gpu.gcn else DESCRIBE
    for target, count, category in gpu.links:
        if category.startswith(CPU):
            raise UsageError(
                f"{name}: {counted(count, kind)} of GPU {gpu.bus} end at a CPU, and busbw has no"
                " model of that path",
                hint,
            )
        if target and target == gpu.bus:
            why = "as in a virtual machine: which GPUs they join is unknown"
            raise UsageError(
                f"{name}: {counted(count, kind)} of GPU {gpu.bus} end at that GPU itself, {why}",
                hint,
            )
        if target in by_bus:
            peers[by_bus[target]] = peers.get(by_bus[target], 0) + count
        elif category.startswith(GPU):
            raise UsageError(
                f"{name}: {counted(count, kind)} of GPU {gpu.bus} end at {target[:20]}, a GPU that"
                " is not in the file",
                DESCRIBE,
            )
    return peers


def _parts(peers: Sequence[dict[int, int]]) -> list[set[int]]:
    """The groups of GPUs that can reach each other over links."""
    unvisited, parts = set(range(len(peers))), []
    while unvisited:
        group, pending = set[int](), [unvisited.pop()]
        while pending:
            gpu = pending.pop()
            group.add(gpu)
            pending += [
                other for other in peers[gpu] if other not in group and other not in pending
            ]
        unvisited -= group
        parts.append(group)
    return parts
