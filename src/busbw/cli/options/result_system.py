"""The system of a result: as the file recorded it, or as the options describe it."""

from dataclasses import replace

from busbw.api.systems import LinkOptions, given_system, with_links
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.core.sizes import counted
from busbw.model.hardware import card_word, is_card
from busbw.model.measured_system import DESCRIBE, EXAMPLE, cpus_of, of_result, on_hosts, shape
from busbw.model.systems import System


def system_of(
    result: Result, file: str, described: tuple[str, str, LinkOptions], nodes: int | None
) -> tuple[System, str, tuple[int, int]]:
    """The system, where it comes from, and the numbers of hosts, or NVLink domains, and of ranks
    on each. `described` are --system, --topo and the options of links; UsageError where something
    is missing.
    """
    system, topo, links = described
    if cpus := cpus_of(result):
        raise UsageError(
            f"{file}: its ranks ran on CPUs ({cpus}), and the model is of GPUs over NCCL",
            f"busbw show {file}",
        )
    given = given_system(system, topo, links)
    shape_of_job = _hosts_and_ranks(result, given[0] if given else None, nodes)
    hosts, per_host = shape_of_job
    hardware, source = given or (_recorded(result, file, links), file)
    hardware = replace(hardware, gpus=max(hardware.gpus, per_host))
    if hosts > 1 and not hardware.nics:
        why = f"{hardware.name}: {hardware.nics_unknown}" if hardware.nics_unknown else ""
        raise UsageError(
            why or f"{file}: the NICs of its {hosts} hosts are unknown",
            "give those that the job uses, like --nics 8x400G",
        )
    return hardware, source, shape_of_job


def _hosts_and_ranks(result: Result, system: System | None, nodes: int | None) -> tuple[int, int]:
    """The number of NVLink domains and of ranks on each: what the file says, or all GPUs of a
    described system. Described hosts are not joined to racks; of a described rack so many GPUs take
    part as it is said to have.
    """
    if not result.world.devices and nodes is not None:
        if system is None:
            raise UsageError("the file names no ranks", DESCRIBE)
        return nodes, system.gpus
    placed = shape(result, system.gpus if system is not None and system.rack else 0)
    if system is not None and placed[1] > system.gpus:
        placed = on_hosts(result)
    if nodes is not None and nodes != placed[0]:
        raise UsageError(
            f"--nodes {nodes}: the file names {counted(placed[0], 'host')}",
            f"--nodes {placed[0]}, or leave it out",
        )
    return placed


def _recorded(result: Result, file: str, links: LinkOptions) -> System:
    """The system that the file recorded, changed by the options."""
    system = of_result(result)
    if isinstance(system, str):  # why there is none
        name = result.world.devices[0].name if result.world.devices else ""
        card = f"{card_word(name)}x{on_hosts(result)[1]}" if is_card(name) else ""
        raise UsageError(f"{file}: {system}", DESCRIBE.replace(EXAMPLE, card) if card else DESCRIBE)
    return with_links(system, links)
