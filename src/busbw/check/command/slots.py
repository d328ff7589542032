"""Too few slots for the ranks."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import HOSTFILES, Line
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted

ROW = CheckRow(
    id="BW221",
    name="line-slots",
    layer=Layer.LAUNCHER,
    title="slots of the hosts, compared with the number of ranks",
    right="at least as many slots as ranks",
    why="A host in -H without a number has one slot, even with -npernode and ppr. mpirun then stops: there are not enough slots available.",
    fix="-H {hosts}",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, --host",),
)


def look(line: Line) -> Iterator[Found]:
    """The sum over -H."""
    ranks, by_host = line.ranks, line.slots
    if not by_host or ranks is None or line.has(*HOSTFILES) or line.allocated:
        yield skipped("the line does not give ranks and hosts with slots")
        return
    if line.has("oversubscribe") or "oversubscribe" in (line.value("map-by") or "").lower() or line.has("rankfile", "rf"):
        yield skipped("more ranks than slots are allowed")
        return
    slots = sum(by_host.values())
    evidence = Evidence("-H", ",".join(line.values("H", "host")), f"{ranks} slots")
    if slots >= ranks:
        yield passed("", f"{ranks} ranks, {slots} slots", evidence)
        return
    each = line.per_node or -(-ranks // len(by_host))
    hosts = ",".join(f"{name}:{each}" for name in by_host)
    yield failed("", f"{ranks} ranks, but the hosts have {counted(slots, 'slot')}", evidence, fix=filled(ROW.fix, hosts=hosts))


CHECK = Rule(ROW, look)
