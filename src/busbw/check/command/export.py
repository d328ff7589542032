"""Variables that do not reach the ranks."""

import re
from collections.abc import Iterator

from busbw.check.base import passed, skipped, unknown, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import EXPORTS, Line
from busbw.check.shell_words import filled, word
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.env import shown
from busbw.core.masking import MASK

_DEVICE = re.compile(r"\^?[a-z]+\d*_?\d+(:\d+)?")  # mlx5_1, bond0
_FORWARDED = ("OMPI_", "PRTE_", "PMIX_")  # Open MPI forwards these itself

ROW = CheckRow(
    id="BW223",
    name="line-export",
    layer=Layer.LAUNCHER,
    title="variables that the line exports to ranks",
    right="mpirun -x for each; srun --export with ALL",
    why="mpirun passes a variable of its shell only to ranks on its own host. Ranks on other hosts need -x. -x NAME passes nothing if "
    "the shell did not export NAME. srun --export=NAME without ALL removes all other variables from the ranks. Its commas separate "
    "variables, not values.",
    fix="-x {name}=VALUE",
    stays=STAYS,
    reads=("the command line", "environment"),
    sources=("Open MPI documentation, mpirun, -x", "srun(1), --export"),
)


def look(line: Line) -> Iterator[Found]:
    """Names without a value, those in front of mpirun, and srun's --export."""
    found = list(_of_srun(line)) if line.launcher == "srun" else [*_in_front(line), *_empty(line)]
    yield from found
    if not line.variables and not found:
        yield skipped("the line exports no variable")
    elif not found:
        yield passed("", f"{len(line.variables)} variables")


def _of_srun(line: Line) -> Iterator[Found]:
    export = line.value("export")
    if export is None:
        return
    words = export.split(",")
    named = [word for word in words if word not in EXPORTS]
    split = [word for word in words if _DEVICE.fullmatch(word)] if "=" in export else []
    if split:
        message = f"--export reads {', '.join(split)} as variable names: a comma ends the value before it"
        yield warned("", message, Evidence("--export", export), fix="export the variable before srun, and leave out --export")
    elif "ALL" not in words:
        message = f"--export={export} removes all other variables from the ranks"
        fix = word(f"--export={','.join(['ALL', *named])}")
        yield warned("", message, Evidence("--export", export, "ALL,..."), fix=fix)


def _in_front(line: Line) -> Iterator[Found]:
    options = {name for name, _ in line.passed}
    alone = [name for name, _ in line.before if name not in options and not name.startswith(_FORWARDED)]
    if line.launcher == "mpirun" and line.several and not line.allocated and alone:
        named = ", ".join(alone)
        message = f"{named} in front of mpirun reaches only the ranks on this host"
        yield warned("", message, Evidence("before mpirun", named, "-x"), fix=" ".join(f"-x {word(name)}" for name in alone))


def _empty(line: Line) -> Iterator[Found]:
    have = {name for name, _ in line.before} | set(line.environment or {})
    bare = [name for name, value in line.passed if value is None and name not in have and shown(name, "x") != MASK]
    if bare and line.environment is None:
        named = ", ".join(bare)
        yield unknown("", f"whether {named} has a value is unknown", Evidence("-x", named, "a value in the environment"))
        return
    for name in bare:
        message = f"-x {name}, but the environment has no {name}"
        yield warned(
            "", message, Evidence(f"${name}", "not set", "a value"), fix=filled("-x {name}=VALUE, or export {name} before", name=name)
        )


CHECK = Rule(ROW, look)
