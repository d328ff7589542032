"""An Open MPI transport list without self."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.launcher import parameters
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW235",
    name="line-btl",
    layer=Layer.LAUNCHER,
    title="Open MPI's list of transports",
    right="an include list with self, or an exclude list, which begins with ^",
    why="Without self a rank cannot send to itself, and MPI_Init fails: a pair of processes, a rank and itself, cannot reach each other.",
    fix="--mca btl tcp,self",
    stays=STAYS,
    reads=("the command line", "environment"),
    sources=("Open MPI documentation, general run-time support notes",),
)


def look(line: Line) -> Iterator[Found]:
    """The parameter btl, from the line or the environment."""
    every = (*line.parameters, *parameters.of_environment(line.environment or {}))
    btl, pml = parameters.given(every, "btl"), parameters.given(every, "pml")
    if line.launcher != "mpirun" or btl is None:
        yield skipped("the line does not set Open MPI's transports")
    elif pml and pml.value in ("ucx", "cm"):
        yield skipped("messages do not go over these transports")
    elif btl.value.startswith("^") or "self" in btl.value.split(","):
        yield passed("", f"{btl.where} {btl.value}", Evidence(btl.where, btl.value))
    else:
        message = f"{btl.where} {btl.value}: without self a rank cannot send to itself"
        yield failed(
            "", message, Evidence(btl.where, btl.value, "self in it"), fix=filled(f"{btl.where} {{value}}", value=f"{btl.value},self")
        )


CHECK = Rule(ROW, look)
