"""Ranks not spread evenly over the hosts."""

from collections.abc import Iterator

from busbw.check.base import passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import HOSTFILES, Line
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW222",
    name="line-spread",
    layer=Layer.LAUNCHER,
    title="ranks per host",
    right="the same number on all hosts",
    why="mpirun fills the first host before the next. With fewer ranks than slots the last host gets few or none. The run then measures "
    "a different network than intended: some hosts use fewer GPUs and NICs than others.",
    fix="-n {ranks}",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, mapping",),
)


def look(line: Line) -> Iterator[Found]:
    """The ranks by host, as mpirun fills them."""
    ranks, nodes = line.ranks, line.nodes
    if not ranks or not nodes or nodes == 1 or line.launcher == "torchrun":
        yield skipped("the line does not give ranks for several hosts")
        return
    if line.per_node or line.launcher != "mpirun" or "node" in (line.value("map-by") or ""):
        yield _even(ranks, nodes)
        return
    slots = line.slots
    if not slots or line.has("rankfile", "rf", *HOSTFILES) or (line.value("map-by") or "").startswith(("ppr", "seq", "rankfile", "dist")):
        yield skipped("the line does not give the ranks of each host")
        return
    left, taken = ranks, {}
    for name, count in slots.items():
        taken[name] = min(count, left)
        left -= taken[name]
    evidence = Evidence("-H", ",".join(line.values("H", "host")), f"{ranks} ranks, the same on each host")
    spread = ", ".join(f"{name}: {count}" for name, count in taken.items())
    if left or len(set(taken.values())) == 1:
        yield passed("", spread, evidence)
    else:
        each = max(ranks // nodes, 1)
        yield warned(
            "",
            f"ranks by host: {spread}",
            evidence,
            fix=filled(f"-n {each * nodes} -H {{hosts}}", hosts=",".join(f"{name}:{each}" for name in slots)),
        )


def _even(ranks: int, nodes: int) -> Found:
    evidence = Evidence("ranks and hosts", f"{ranks} on {nodes}")
    if ranks % nodes == 0:
        return passed("", f"{ranks // nodes} ranks on each of {nodes} hosts", evidence)
    return warned("", f"{ranks} ranks do not divide over {nodes} hosts", evidence, fix=f"-n {max(ranks // nodes, 1) * nodes}")


CHECK = Rule(ROW, look)
