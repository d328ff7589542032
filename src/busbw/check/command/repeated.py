"""Values given twice."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW234",
    name="line-repeated",
    layer=Layer.LAUNCHER,
    title="variables and parameters given twice",
    right="each once",
    why="Open MPI rejects a parameter with two values; 4.1 even rejects the same value twice. For a variable, 4.1.4 uses the last value, "
    "5.0.11 the first.",
    fix="remove one of them",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, -x and --mca",),
)


def look(line: Line) -> Iterator[Found]:
    """Names with different values, and for Open MPI 4 with the same."""
    given = [(name, value) for name, value in line.variables if value is not None]
    given += [(f"--{one.kind} {one.name}", one.value) for one in line.parameters]
    if not given:
        yield skipped("the line has no variable and no parameter")
        return
    values: dict[str, list[str]] = {}
    for name, value in given:
        values.setdefault(name, []).append(value)
    strict = 0 < line.major < 5
    twice = {name: every for name, every in values.items() if len(every if strict and name.startswith("--") else set(every)) > 1}
    for name, every in twice.items():
        evidence = [Evidence(name, value) for value in every]
        worse = failed if name.startswith("--") else warned
        yield worse(
            "", f"{name} is given as {' and as '.join(every)}", *evidence, fix=filled("remove one of the values of {name}", name=name)
        )
    if not twice:
        yield passed("", f"{len(values)} names, each with one value")


CHECK = Rule(ROW, look)
