"""CPUs, sockets and NUMA nodes against [cpus]."""

from collections.abc import Iterator

from busbw.check.base import skipped
from busbw.check.expect import seen
from busbw.check.expect.base import Asked, Comparison, Expectation
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW295",
    name="expect-cpus",
    layer=Layer.EXPECTED,
    title="sockets, CPUs and NUMA nodes, as an expectations file has them",
    right="exactly sockets, online and numa_nodes of [cpus]",
    why="A BIOS reset changes hyper-threading or the number of NUMA nodes, and with it where ranks and interrupts run.",
    fix="compare the BIOS settings with those of a good node: hyper-threading (SMT), NUMA nodes per socket; lscpu",
    stays="permanent: hardware or a BIOS setting",
    reads=(f"{seen.CPU}/online", f"{seen.CPU}/cpu*/topology/core_siblings_list", f"{seen.NODE}/online"),
    sources=("the file given with --expect",),
)


def look(asked: Asked) -> Iterator[Found]:
    """One finding for the host."""
    machine, expected = asked.machine, asked.node.cpus
    compared = Comparison(asked, "", ROW.fix)
    compared.same("number of sockets", seen.sockets(machine) if expected.sockets is not None else None, expected.sockets,
                  ("cpus", "sockets"), f"{seen.CPU}/cpu*/topology/core_siblings_list")  # fmt: skip
    compared.same("number of CPUs online", seen.online(machine), expected.online, ("cpus", "online"), f"{seen.CPU}/online")
    compared.same("number of NUMA nodes", seen.numa_nodes(machine), expected.numa_nodes, ("cpus", "numa_nodes"), f"{seen.NODE}/online")
    yield from compared.found() or [skipped("the file expects nothing of the CPUs")]


CHECK = Expectation(ROW, look)
