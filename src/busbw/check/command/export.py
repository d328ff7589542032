"""Variables that do not reach the ranks."""

from collections.abc import Iterator

from busbw.check.base import passed, skipped, unknown, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.env import MASK, shown

ROW = CheckRow(
    id="BW223",
    name="line-export",
    layer=Layer.LAUNCHER,
    title="variables that the line passes on",
    right="variables with a value, on the line or in the environment; srun --export with ALL",
    why="mpirun -x NAME passes on what the environment has, and nothing if the shell did not export it. srun --export=NAME without ALL "
    "takes PATH and LD_LIBRARY_PATH from the ranks.",
    fix="-x {name}=VALUE",
    stays=STAYS,
    reads=("the command line", "environment"),
    sources=("Open MPI documentation, mpirun, -x", "srun(1), --export"),
)


def look(line: Line) -> Iterator[Found]:
    """Names without a value, and srun's --export."""
    export = line.value("export") if line.launcher == "srun" else None
    if export is not None and not {"ALL"} & set(export.split(",")):
        message = f"--export={export} takes all other variables from the ranks"
        yield warned("", message, Evidence("--export", export, "ALL,..."), fix=f"--export=ALL,{export}")
        return
    bare = [name for name, value in line.variables if value is None and shown(name, "x") != MASK]
    if not line.variables:
        yield skipped("the line passes on no variable")
    elif bare and line.environment is None:
        named = ", ".join(bare)
        yield unknown("", f"whether {named} has a value is not known", Evidence("-x", named, "a value in the environment"))
    else:
        empty = [name for name in bare if name not in (line.environment or {})]
        for name in empty:
            message = f"-x {name}, but the environment has no {name}"
            yield warned("", message, Evidence(f"${name}", "not set", "a value"), fix=f"-x {name}=VALUE, or export {name} before")
        if not empty:
            yield passed("", f"{len(line.variables)} variables")


CHECK = Rule(ROW, look)
