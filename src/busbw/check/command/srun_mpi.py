"""MPI programs started by srun without PMIx."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.command.perf import perf
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "SLURM_MPI_TYPE"

ROW = CheckRow(
    id="BW230",
    name="line-srun-mpi",
    layer=Layer.LAUNCHER,
    title="srun's --mpi for MPI programs",
    right="pmix",
    why="Open MPI 5 ranks find each other only through PMIx. Open MPI 4 uses PMIx or, if built with it, PMI2. MPICH uses PMI2. Without "
    "--mpi, srun uses the default of slurm.conf. If that is none, each rank runs as a job of size one and prints its own table.",
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
        yield failed("", f"--mpi={given} starts each rank as a separate job of size one", evidence, fix=ROW.fix)
    elif not given.startswith("pmix"):
        bad = warned if line.major >= 5 else unknown
        yield bad("", f"--mpi={given} does not work with Open MPI 5, which supports only PMIx", evidence, fix=ROW.fix)
    else:
        yield passed("", f"--mpi={given}", evidence)


CHECK = Rule(ROW, look)
