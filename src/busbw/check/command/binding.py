"""Ranks bound to a single core."""

from collections.abc import Iterator

from busbw.check.base import passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.command.perf import perf
from busbw.check.launcher import parameters
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

NARROW = ("core", "hwthread", "l1cache", "l2cache")
FEW = 2  # up to this many ranks Open MPI binds each to a core
OF_FOUR, OF_FIVE = "hwloc_base_binding_policy", "hwloc_default_binding_policy"

ROW = CheckRow(
    id="BW227",
    name="line-binding",
    layer=Layer.LAUNCHER,
    title="binding of ranks with GPUs",
    right="--bind-to none, or numa",
    why="NCCL's proxy and network threads run on the cores of their rank. Open MPI binds each rank to one core by default if there are "
    "at most two ranks in total, and with --bind-to core in any case. The threads then take turns on that core.",
    fix="--bind-to none",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, binding",),
)


def look(line: Line) -> Iterator[Found]:
    """The binding, for nccl-tests and lines that set NCCL variables."""
    uses_nccl = perf(line) is not None or any(name.startswith("NCCL_") for name, _ in line.variables)
    if line.launcher != "mpirun" or not uses_nccl:
        yield skipped("not a line of mpirun with a program known to use NCCL")
        return
    if "pe=" in (line.value("map-by") or "").lower() or line.has("cpus-per-proc", "cpus-per-rank", "cpu-set", "cpu-list", "rankfile", "rf"):
        yield passed("", "the line gives each rank its cores")
        return
    given = (line.value("bind-to") or _policy(line)).lower().partition(":")[0]
    if not given and line.ranks is not None and line.ranks <= FEW:
        evidence = Evidence("--bind-to", "not given: core for 1 and 2 ranks", "none or numa")
        yield warned("", f"{line.ranks} ranks without --bind-to are bound to one core each", evidence, fix="--bind-to none")
    elif given in NARROW:
        message = f"--bind-to {given}: NCCL's threads share it with their rank"
        yield warned("", message, Evidence("--bind-to", given, "none or numa"), fix="--bind-to none")
    else:
        yield passed("", f"--bind-to {given}" if given else "more than two ranks are bound to a NUMA node by default")


def _policy(line: Line) -> str:
    """The binding that a parameter sets; Open MPI 5 ignores that of 4."""
    names = (OF_FOUR,) if line.major == 4 else (OF_FIVE,) if line.major else (OF_FOUR, OF_FIVE)
    every = (*line.parameters, *parameters.of_environment(line.environment or {}))
    return next((one.value for name in names if (one := parameters.given(every, name))), "")


CHECK = Rule(ROW, look)
