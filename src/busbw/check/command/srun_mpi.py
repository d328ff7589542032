"""MPI programs that srun starts without PMIx."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.command.perf import perf
from busbw.core.checking import CheckRow, Evidence, Found, Layer

VARIABLE = "SLURM_MPI_TYPE"

ROW = CheckRow(
    id="BW230",
    name="line-srun-mpi",
    layer=Layer.LAUNCHER,
    title="srun's --mpi for programs with MPI",
    right="pmix",
    why="Ranks of Open MPI 5 find each other through PMIx alone, those of 4 through PMIx or PMI2. Without --mpi the default of slurm.conf "
    "counts; if it is none, each rank runs as a job of one and prints a table of its own.",
    fix="srun --mpi=pmix",
    stays=f"{STAYS}; MpiDefault=pmix in slurm.conf makes it the default",
    reads=("the command line", f"${VARIABLE}"),
    sources=("Slurm, MPI users guide",),
)


def look(line: Line) -> Iterator[Found]:
    """The option, for nccl-tests."""
    if line.launcher != "srun" or perf(line) is None:
        yield skipped("not a line of srun with a program of nccl-tests")
        return
    given = line.value("mpi") or (line.environment or {}).get(VARIABLE)
    evidence = Evidence("--mpi", given or "not given", "pmix")
    if given is None:
        yield warned("", "srun without --mpi uses the default of slurm.conf", evidence, fix=ROW.fix)
    elif given == "none":
        yield failed("", "--mpi=none starts each rank as a job of one", evidence, fix=ROW.fix)
    elif not given.startswith("pmix"):
        yield warned("", f"--mpi={given}: Open MPI 5 has PMIx only", evidence, fix=ROW.fix)
    else:
        yield passed("", f"--mpi={given}", evidence)


CHECK = Rule(ROW, look)
