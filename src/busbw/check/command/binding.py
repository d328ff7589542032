"""Ranks that are bound to one core."""

from collections.abc import Iterator
from pathlib import Path

from busbw.check.base import passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line, inner
from busbw.check.command.perf import perf
from busbw.core.checking import CheckRow, Evidence, Found, Layer

NARROW = ("core", "hwthread", "l1cache", "l2cache")
FEW = 2  # up to so many ranks Open MPI binds each to a core

ROW = CheckRow(
    id="BW227",
    name="line-binding",
    layer=Layer.LAUNCHER,
    title="binding of ranks that use GPUs",
    right="--bind-to none, or numa",
    why="NCCL's proxy and network threads run on the cores of their rank. Open MPI binds a rank to one core by default if there are at "
    "most two, and --bind-to core always: the threads then take turns on it.",
    fix="--bind-to none",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, binding",),
)


def look(line: Line) -> Iterator[Found]:
    """The binding, for nccl-tests and Python programs."""
    program = inner(line.program)
    uses_gpus = perf(line) is not None or (bool(program) and Path(program[0]).name.startswith("python"))
    if line.launcher != "mpirun" or not uses_gpus:
        yield skipped("not a line of mpirun with a program that uses GPUs, as far as its name tells")
        return
    given = (line.value("bind-to") or "").lower().partition(":")[0]
    if not given and line.ranks is not None and line.ranks <= FEW:
        evidence = Evidence("--bind-to", "not given: core for 1 and 2 ranks", "none or numa")
        yield warned("", f"{line.ranks} ranks without --bind-to are bound to one core each", evidence, fix="--bind-to none")
    elif given in NARROW:
        message = f"--bind-to {given}: NCCL's threads share it with their rank"
        yield warned("", message, Evidence("--bind-to", given, "none or numa"), fix="--bind-to none")
    else:
        yield passed("", f"--bind-to {given}" if given else "more than two ranks are not bound to single cores by default")


CHECK = Rule(ROW, look)
