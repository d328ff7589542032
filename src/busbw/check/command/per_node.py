"""Numbers of ranks that contradict each other."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line, inner, parse
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW229",
    name="line-per-node",
    layer=Layer.LAUNCHER,
    title="total ranks, hosts and ranks per host",
    right="-n is at most hosts times -npernode, ppr or --ntasks-per-node; only one of -npernode and --map-by; srun starts one torchrun "
    "per host",
    why="mpirun stops if -n is larger; srun then ignores --ntasks-per-node. -npernode is --map-by ppr: with both, Open MPI 5 stops and 4 "
    "follows --map-by. torchrun starts the ranks of a host itself: eight torchruns on a host start eight times as many.",
    fix="-n {ranks}",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, --map-by", "srun(1), --ntasks-per-node", "PyTorch documentation, torchrun"),
)


def look(line: Line) -> Iterator[Found]:
    """All numbers of the line together."""
    each, nodes, ranks = line.per_node, line.nodes, line.ranks
    started = parse(inner(line.program)) if line.launcher == "srun" else None
    if line.launcher not in ("mpirun", "srun") or not each:
        yield skipped("the line gives no number of ranks per host")
    elif _mapped_twice(line):
        by_map = line.value("map-by") or ""
        evidence = Evidence("--map-by", by_map, f"ppr:{each}:node")
        message = f"{each} ranks per host, but --map-by {by_map}: Open MPI 5 stops, 4 follows --map-by"
        yield (failed if line.major >= 5 or by_map.startswith("ppr:") else warned)("", message, evidence, fix=f"--map-by ppr:{each}:node")
    elif started and started.launcher == "torchrun" and each > 1 and started.per_node != 1:
        evidence = Evidence("--ntasks-per-node", str(each), "1")
        message = f"srun starts {each} torchruns on each host, and each starts all ranks of a host"
        yield failed("", message, evidence, fix="--ntasks-per-node=1")
    elif not ranks or not nodes or any(host.wrong for host in line.hosts):
        yield skipped("the line does not give both ranks and hosts")
    elif ranks > each * nodes:
        evidence = Evidence("ranks", str(ranks), f"at most {nodes} hosts x {each}")
        message = f"{nodes} hosts with {each} ranks each are {each * nodes}, not {ranks}"
        yield (failed if line.launcher == "mpirun" else warned)("", message, evidence, fix=f"-n {each * nodes}")
    else:
        yield passed("", f"{ranks} ranks, at most {each} on each of {nodes} hosts")


def _mapped_twice(line: Line) -> bool:
    """Whether -npernode and a different mapping are both given."""
    by_option, by_map = line.number("npernode", "N") or (1 if line.has("pernode") else None), line.value("map-by") or ""
    if line.launcher != "mpirun" or not by_option or not by_map or by_map.startswith(":"):
        return False
    return line.major >= 5 or not line.major or (by_map.startswith("ppr:") and not by_map.startswith(f"ppr:{by_option}:"))


CHECK = Rule(ROW, look)
