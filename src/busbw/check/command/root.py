"""mpirun as root."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

OPTION = "allow-run-as-root"
VARIABLES = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

ROW = CheckRow(
    id="BW226",
    name="line-root",
    layer=Layer.LAUNCHER,
    title="mpirun as root",
    right=f"--{OPTION}, as in most containers, or another user",
    why="Open MPI refuses to start as root without it, or without the variables OMPI_ALLOW_RUN_AS_ROOT and "
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM. -x sets them for the ranks, not for mpirun.",
    fix=f"--{OPTION}",
    stays=STAYS,
    reads=("the command line", "the user"),
    sources=("Open MPI documentation, mpirun, running as root",),
)


def look(line: Line) -> Iterator[Found]:
    """The option, where root runs the line."""
    if line.launcher != "mpirun" or line.root is None:
        yield skipped("not a line of mpirun" if line.launcher != "mpirun" else "the user is unknown")
    elif not line.root:
        yield passed("", "the user is not root")
    elif line.has(OPTION):
        yield passed("", f"--{OPTION} is given")
    elif VARIABLES.items() <= {**(line.environment or {}), **dict(line.before)}.items():
        yield passed("", f"{' and '.join(VARIABLES)} are set")
    else:
        yield failed("", "mpirun refuses to run as root", Evidence("user here", "root"), fix=f"mpirun --{OPTION} ...")


CHECK = Rule(ROW, look)
