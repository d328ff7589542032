"""Too few slots for the ranks."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.core.checking import CheckRow, Evidence, Found, Layer

ROW = CheckRow(
    id="BW221",
    name="line-slots",
    layer=Layer.LAUNCHER,
    title="slots of the hosts against the number of ranks",
    right="as many slots as ranks, or more",
    why="A host of -H without a number has one slot. mpirun stops: there are not enough slots available.",
    fix="-H {hosts}",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, --host",),
)


def look(line: Line) -> Iterator[Found]:
    """The sum over -H."""
    ranks = line.ranks
    if not line.hosts or ranks is None or any(host.slots and not host.slots.isdigit() for host in line.hosts):
        yield skipped("the line does not give ranks and hosts with slots")
        return
    if line.has("npernode", "N", "ppn", "oversubscribe") or "oversubscribe" in (line.value("map-by") or "").lower():
        yield skipped("ranks for each host are given, or more ranks than slots are allowed")
        return
    slots = sum(host.count for host in line.hosts)
    evidence = Evidence("-H", ",".join(line.values("H", "host")), f"{ranks} slots")
    if slots >= ranks:
        yield passed("", f"{ranks} ranks, {slots} slots", evidence)
        return
    names = list(dict.fromkeys(host.name for host in line.hosts))
    each = -(-ranks // len(names))
    yield failed("", f"{ranks} ranks, but the hosts have {slots} slots", evidence, fix=f"-H {','.join(f'{name}:{each}' for name in names)}")


CHECK = Rule(ROW, look)
