"""Hosts separated by a colon instead of a comma."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW220",
    name="line-hosts",
    layer=Layer.LAUNCHER,
    title="hosts in mpirun's -H",
    right="hosts separated by commas; after a colon, a number of slots, * or auto",
    why="The colon separates a host from its slots. host1:host2 is only host1: mpirun 4.1.4 and 5.0.11 stop because its nodes are full. "
    "In 10.1.1.1:10.1.1.2 they read the first number as slots, and start up to 10 ranks on the first host and none on the second.",
    fix="-H {hosts}",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, --host",),
)


def look(line: Line) -> Iterator[Found]:
    """Each entry."""
    if not line.hosts:
        yield skipped("the line names no hosts")
        return
    wrong = [host for host in line.hosts if host.wrong]
    given = ",".join(line.values("H", "host"))
    each = f":{line.per_node}" if line.per_node else ""
    if not wrong:
        yield passed("", f"{len(line.hosts)} hosts", Evidence("-H", given))
        return
    named = [part for host in line.hosts for part in ((host.name, host.slots) if host in wrong else (host.name,))]
    first = wrong[0]
    message = f"{first.name}:{first.slots} is {first.name} with '{first.slots}' slots: a comma separates hosts"
    yield failed("", message, Evidence("-H", given, "h1:8,h2:8"), fix=filled("-H {hosts}", hosts=",".join(name + each for name in named)))


CHECK = Rule(ROW, look)
