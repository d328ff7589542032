"""Numbers of ranks that contradict each other."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.core.checking import CheckRow, Evidence, Found, Layer

ROW = CheckRow(
    id="BW229",
    name="line-per-node",
    layer=Layer.LAUNCHER,
    title="ranks, hosts and ranks of each host",
    right="-n is the number of hosts times -npernode, ppr or --ntasks-per-node",
    why="mpirun and srun stop, or start fewer ranks than meant, and the measurement is of another number of GPUs.",
    fix="-n {ranks}",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, --map-by", "srun(1), --ntasks-per-node"),
)


def look(line: Line) -> Iterator[Found]:
    """All numbers of the line together."""
    each, nodes, ranks = line.per_node, line.nodes, line.number("n", "np", "c") or line.number("ntasks")
    by_map = line.value("map-by") or ""
    by_option = line.number("npernode", "N", "ppn") if line.launcher == "mpirun" else None
    if line.launcher == "torchrun" or not each:
        yield skipped("the line gives no number of ranks for each host")
    elif by_option and by_map.startswith("ppr:") and not by_map.startswith(f"ppr:{by_option}:"):
        evidence = Evidence("--map-by", by_map, f"ppr:{by_option}:node")
        yield failed("", f"{by_option} ranks for each host, but --map-by {by_map}", evidence, fix=f"--map-by ppr:{by_option}:node alone")
    elif not ranks or not nodes or any(host.slots and not host.slots.isdigit() for host in line.hosts):
        yield skipped("the line does not give both ranks and hosts")
    elif ranks != each * nodes:
        evidence = Evidence("ranks", str(ranks), f"{nodes} hosts x {each}")
        yield failed("", f"{nodes} hosts with {each} ranks each are {each * nodes}, not {ranks}", evidence, fix=f"-n {each * nodes}")
    else:
        yield passed("", f"{nodes} hosts with {each} ranks each are {ranks}")


CHECK = Rule(ROW, look)
