"""GPUs with NVLink: the links that each should have, and a finding for each GPU."""

from collections.abc import Callable, Iterator

from busbw.check.base import not_offered, skipped, unknown
from busbw.check.gpu.per_gpu import WITHHELD, no_gpus, unreadable
from busbw.check.machine import Machine
from busbw.check.types import Found
from busbw.host.gpu import nvlink_rate
from busbw.host.gpu_health import GpuHealth, Link
from busbw.host.nvml_health import read_health
from busbw.model.hardware import GENERATIONS, Generation

# Words in the names of cards whose links are joined by bridges that a server may lack.
BRIDGED = frozenset({"PCIE", "FHHL", "NVL", "ACTIVE", "A6000"})


def _words(gpu: GpuHealth) -> set[str]:
    return set(gpu.name.upper().replace("-", " ").split())


def bridged(gpu: GpuHealth) -> bool:
    """Whether it is a card whose NVLinks need a bridge."""
    return bool(_words(gpu) & BRIDGED)


def expected_links(gpu: GpuHealth) -> Generation | None:
    """The links of a GPU on a board with NVLink.

    None for cards with bridges and for models that busbw does not know.
    """
    return (
        None
        if bridged(gpu)
        else next((row for row in GENERATIONS if _words(gpu).intersection(row.names)), None)
    )


def nominal_rate(gpu: GpuHealth, link: Link) -> float | None:
    """Nominal bytes per second of a link in one direction."""
    return nvlink_rate(link.speed_mbps, gpu.sm or 0, [link.version])


def each_linked_gpu(machine: Machine, judge: Callable[[GpuHealth], Found]) -> Iterator[Found]:
    """The finding on every GPU with an active link.

    Skip for GPUs without one, unknown for GPUs that NVML cannot read.
    """
    gpus = read_health(machine)
    if missing := no_gpus(machine, gpus):
        yield missing
    for gpu in gpus.gpus:
        if gpu.error or gpu.links is None:
            yield unreadable(gpu, "links", "its links")
        elif not gpu.active:
            yield skipped("no active NVLink", gpu.label)
        else:
            yield judge(gpu)


def _leads_nowhere_known(gpu: GpuHealth) -> bool:
    """Whether NVML does not say where each active link of a GPU leads."""
    if gpu.error or gpu.links is None:
        return True
    return any(link.remote is None for link in gpu.active)


def switched(machine: Machine) -> tuple[tuple[GpuHealth, ...], Found | None]:
    """The GPUs behind NVSwitch, and the finding if there are none: skip or unknown."""
    gpus = read_health(machine)
    if missing := no_gpus(machine, gpus):
        return (), missing
    behind = tuple(gpu for gpu in gpus.gpus if gpu.switched)
    if behind:
        return behind, None
    unclear = [gpu.label for gpu in gpus.gpus if _leads_nowhere_known(gpu)]
    if unclear:
        lost = any(
            (gpu.error and WITHHELD not in gpu.error) or (not gpu.error and gpu.links is None)
            for gpu in gpus.gpus
        )
        return (), (unknown if lost else not_offered)(
            "", f"NVML does not report where the links of {', '.join(unclear)} lead"
        )
    return (), skipped("no GPU is behind NVSwitch")
