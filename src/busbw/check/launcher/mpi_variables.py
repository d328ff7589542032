"""Variables of the other Open MPI major version."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, not_offered, passed, skipped, warned
from busbw.check.launcher import parameters, programs
from busbw.check.launcher.mpijob import HOSTFILE, OTHERS
from busbw.check.machine import Machine
from busbw.check.shell_words import assignment, word
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW207",
    name="mpi-variables",
    layer=Layer.LAUNCHER,
    title="OMPI_MCA_ and PRTE_MCA_ variables, compared with the mpirun version",
    right="names of the installed version",
    why="Open MPI 5 reads its daemons' settings from PRTE_MCA_ and PMIX_MCA_, and renamed many. Depending on the version it translates "
    "some old names. Open MPI 4 ignores all new ones.",
    fix="export PRTE_MCA_{name}={value}",
    stays="set it in the job script or image",
    reads=("environment", "mpirun --version"),
    sources=("Open MPI 5 documentation, MCA parameters",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each variable that belongs to the other version."""
    if machine.environment is None:
        yield no_environment()
        return
    every = parameters.of_environment(machine.environment)
    found = programs.open_mpi(machine)
    if not every:
        yield passed("", "no variable sets a parameter of Open MPI")
    elif found is None:
        yield not_offered("", "the version of mpirun is not known", *(Evidence(one.where, one.value) for one in every))
    elif not found.major:
        yield skipped("no mpirun on PATH")
    else:
        # An MPIJob sets names of Open MPI 4 for all images.
        own = {HOSTFILE, *OTHERS} if HOSTFILE in machine.environment else set()
        strange = [(one, new) for one in every if one.where[1:] not in own and (new := parameters.misplaced(one, found.major))]
        for one, new in strange:
            message = f"Open MPI {found.version} may ignore {one.where}, a name of another major version"
            yield warned(
                "", message, Evidence(one.where, one.value), fix=f"unset {word(one.where.removeprefix('$'))}; export {_variable(new)}"
            )
        if not strange:
            yield passed("", f"all are names of Open MPI {found.major}", *(Evidence(one.where, one.value) for one in every))


def _variable(option: str) -> str:
    kind, name, value = option.removeprefix("--").split(" ", 2)
    prefix = next(prefix for prefix, of in parameters.PREFIXES.items() if of == kind)
    return assignment(f"{prefix}{name}", value)


CHECK = Check(ROW, look)
