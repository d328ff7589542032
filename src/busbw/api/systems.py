"""A system as options or arguments describe it: its links, what NCCL may choose, and the sizes."""

from dataclasses import dataclass, replace

from busbw.core.errors import UsageError
from busbw.core.sizes import parse_size
from busbw.model import topo_xml
from busbw.model.measured_system import of_host
from busbw.model.nccl.choice import AllowedAlgorithms, allowed
from busbw.model.networks import parse_network
from busbw.model.systems import System, parse_system, with_assumed_network, with_nics

AUTO, MAX_UPLINKS = "auto", 4096  # of --ecmp


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The options that change the links of a system; empty ones leave them as they are."""

    nics: str = ""
    fabric: str = ""
    cpu: str | None = None


def _read_topo(path: str) -> System:
    from busbw.api.files import read_bytes  # it imports the readers of all files

    return topo_xml.read(read_bytes(path), path)


def given_system(system: str, topo: str, links: LinkOptions) -> tuple[System, str] | None:
    """The system that options describe, and its source; None without --system and --topo."""
    if system and topo:
        raise UsageError("--system and --topo are both given", "give one of them")
    if not (system or topo):
        return None
    described = _read_topo(topo) if topo else parse_system(system)
    return with_links(described, links), topo or "described"


def this_system(links: LinkOptions) -> tuple[System, str]:
    """The system of this machine; NoMeasurement if it has no GPUs that can be read."""
    from busbw.host.host_facts import read_host  # it imports all readers of this machine

    return with_links(of_host(read_host()), links), "this host"


def with_links(system: System, links: LinkOptions) -> System:
    """The system with the NICs, the network and the CPU of the options, if they are given.

    The network is assumed where only one vendor's hosts have such NICs.
    """
    if links.nics:
        system = with_nics(system, links.nics)
    if links.fabric:
        system = replace(system, network=parse_network(links.fabric))
    if links.cpu:
        system = replace(system, cpu=links.cpu)
    return with_assumed_network(system)


def parse_allowed(algo: str, proto: str, collective: str) -> AllowedAlgorithms:
    """What --algo and --proto allow; UsageError if they name nothing that the model knows."""
    choices = allowed({"NCCL_ALGO": algo, "NCCL_PROTO": proto}, collective)
    for option, text, chosen, names in (
        ("--algo", algo, choices.algorithms, AllowedAlgorithms().algorithms),
        ("--proto", proto, choices.protocols, AllowedAlgorithms().protocols),
    ):
        if text and set(chosen) == set(names):
            raise UsageError(
                f"{option}: '{text}' names none of them",
                f"the names are {', '.join(names)}; ^ excludes",
            )
    return choices


def sizes(smallest: str, largest: str, factor: int) -> list[int]:
    """The sizes in bytes, each `factor` times the one before; UsageError if there are none."""
    first, last = parse_size(smallest, "-b"), parse_size(largest, "-e")
    if not 0 < first <= last:
        raise UsageError(
            f"-b {smallest} -e {largest}: there is no size between them",
            "give a size above 0, and a larger one, like -b 1M -e 16G",
        )
    sizes_bytes = [first]
    while sizes_bytes[-1] * factor <= last:
        sizes_bytes.append(sizes_bytes[-1] * factor)
    return sizes_bytes
