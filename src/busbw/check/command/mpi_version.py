"""Options of the other Open MPI major version."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.launcher import parameters
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW225",
    name="line-mpi-version",
    layer=Layer.LAUNCHER,
    title="parameters, compared with the Open MPI version",
    right="names of the version that runs the line",
    why="Open MPI 5 starts its daemons with PRRTE and renamed plm_rsh_args, oob_tcp_if_include and orte_*. After --mca it translates the "
    "old names (5.0.8, 5.0.11). After --prtemca it ignores plm_rsh_args, and mpirun connects to the wrong port. Open MPI 4 ignores the "
    "new names, and stops at --prtemca and --pmixmca.",
    fix="--prtemca {name} {value}",
    stays=STAYS,
    reads=("the command line", "mpirun --version"),
    sources=("Open MPI 5 documentation, MCA parameters", "PRRTE documentation"),
)


def look(line: Line) -> Iterator[Found]:
    """Each parameter."""
    if line.launcher != "mpirun" or not line.parameters:
        yield skipped("the line has no parameter of Open MPI")
        return
    if not line.major:
        of = {major: [one for one in line.parameters if parameters.misplaced(one, major)] for major in (4, 5)}
        bound = [Evidence(one.where, one.value, f"Open MPI {9 - major}") for major, some in of.items() for one in some]
        if of[4] and not of[5] and any(one.kind != "mca" for one in of[4]):
            yield passed("", "the line is for Open MPI 5", *bound)
        elif bound:
            yield unknown("", "the Open MPI version is unknown, and names on the line differ between 4 and 5", *bound)
        else:
            yield passed("", "Open MPI 4 and 5 have these names")
        return
    wrong = [(one, new) for one in line.parameters if (new := parameters.misplaced(one, line.major))]
    for one, new in wrong:
        stops = line.major < parameters.FIVE and one.kind != "mca"
        message = f"Open MPI {line.major} {'stops at' if stops else 'ignores'} {one.where}"
        yield (failed if stops else warned)("", message, Evidence(one.where, one.value, new), fix=new)
    if not wrong:
        yield passed("", f"Open MPI {line.major} accepts these names")


CHECK = Rule(ROW, look)
