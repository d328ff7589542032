"""MPI programs that srun starts without PMIx."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, unknown, warned
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
    why="Ranks of Open MPI 5 find each other through PMIx alone, those of 4 through PMIx or, if it is built so, PMI2, those of MPICH "
    "through PMI2. Without --mpi the default of slurm.conf counts; if it is none, each rank runs as a job of one and prints "
    "a table of its own.",
    fix="srun --mpi=pmix",
    stays=f"{STAYS}; MpiDefault=pmix in slurm.conf makes it the default",
    reads=("the command line", f"${VARIABLE}"),
    sources=("Slurm, MPI users guide",),
)


def look(line: Line) -> Iterator[Found]:
    """The option, for nccl-tests."""
    if line.launcher != "srun" or perf(line) is None or line.ranks == 1:
        yield skipped("not a line of srun with several ranks of nccl-tests")
        return
    given = line.value("mpi") or (line.environment or {}).get(VARIABLE)
    evidence = Evidence("--mpi", given or "not given", "pmix")
    if given is None:
        yield unknown("", "srun without --mpi uses the default of slurm.conf (MpiDefault)", evidence, fix=ROW.fix)
    elif given in ("none", "openmpi"):
        yield failed("", f"--mpi={given} starts each rank as a job of one", evidence, fix=ROW.fix)
    elif not given.startswith("pmix"):
        bad = warned if line.major >= 5 else unknown
        yield bad("", f"--mpi={given} is not for Open MPI 5, which has PMIx only", evidence, fix=ROW.fix)
    else:
        yield passed("", f"--mpi={given}", evidence)


CHECK = Rule(ROW, look)
