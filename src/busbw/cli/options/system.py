"""Options that describe a system, shared by `busbw predict` and `busbw explain`."""

from dataclasses import dataclass, replace
from typing import Any

import click

from busbw.cli.options.parameters import not_empty
from busbw.cli.options.shared import Decorator, options
from busbw.core.errors import UsageError
from busbw.core.sizes import parse_size
from busbw.model import topo_xml
from busbw.model.measured_system import of_host
from busbw.model.nccl.choice import AllowedAlgorithms, allowed
from busbw.model.nccl.constants import FITTED
from busbw.model.networks import parse_network
from busbw.model.systems import (
    CPUS,
    MAX_HOSTS,
    System,
    parse_system,
    with_assumed_network,
    with_nics,
)

AUTO, MAX_UPLINKS = "auto", 4096  # of --ecmp


def system_options(default: str) -> Decorator:
    """The options of a system; `default` names what is taken without them."""
    system_help = (
        "GPU and how many a host has, or a cloud's host: h100x8, gb200nvl72, p5.48xlarge "
        f" [default: {default}]"
    )
    return options(
        click.option("--system", default="", callback=not_empty, help=system_help),
        click.option(
            "--topo",
            default="",
            callback=not_empty,
            help="a host's topology as NCCL_TOPO_DUMP_FILE writes it",
        ),
        click.option(
            "--nics",
            default="",
            callback=not_empty,
            help="ports of a host and Gbit/s of each: 8x400G",
        ),
        click.option(
            "--fabric",
            default="",
            callback=not_empty,
            help="network of the hosts, or the latency that its plugin reports: efav2, 75us",
        ),
        click.option(
            "--cpu", type=click.Choice(CPUS), help="the hosts' CPU, which NCCL's model depends on"
        ),
    )


recorded_nodes_option = click.option(
    "--nodes",
    type=click.IntRange(1, MAX_HOSTS),
    help="number of hosts, where the file does not say",
)
nccl_option = click.option(
    "--nccl",
    default=FITTED,
    callback=not_empty,
    show_default=True,
    help="release whose choice is predicted: 2.27, or latest",
)
settings_options = options(
    click.option(
        "--algo", default="", callback=not_empty, help="as NCCL_ALGO: Ring, or ^NVLS,NVLSTree"
    ),
    click.option("--proto", default="", callback=not_empty, help="as NCCL_PROTO"),
)


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The options that change the links of a system; empty ones leave them as they are."""

    nics: str = ""
    fabric: str = ""
    cpu: str | None = None


def _read_topo(path: str) -> System:
    from busbw.cli.file_kinds import read_bytes  # it imports the readers of all files

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


class HostCounts(click.ParamType[tuple[int, ...]]):
    """Numbers of hosts: `1,2,128`, in ascending order without repeats."""

    name = "counts"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers; UsageError for other text."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        is_number = all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts)
        numbers = [int(part) for part in parts] if is_number else [0]
        if not all(1 <= number <= MAX_HOSTS for number in numbers):
            raise UsageError(
                f"--nodes: '{value}' are not numbers of hosts",
                f"give 1 to {MAX_HOSTS}, like --nodes 2 or --nodes 1,2,128",
            )
        return tuple(sorted(set(numbers)))


class Uplinks(click.ParamType[int]):
    """Uplinks of a leaf switch: a number, or `auto`, which is 0."""

    name = "uplinks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; UsageError for other text."""
        text = str(value)
        if text == AUTO:
            return 0
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
        if not 1 <= number <= MAX_UPLINKS:
            raise UsageError(
                f"--ecmp '{text}': not a number of uplinks",
                f"give 1 to {MAX_UPLINKS}, or {AUTO} for as many as the oversubscription leaves",
            )
        return number


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
