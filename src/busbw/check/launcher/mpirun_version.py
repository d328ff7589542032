"""Which Open MPI starts the ranks of `busbw run`."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unread, warned
from busbw.check.launcher import programs
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

FAULTS = {"5.0.5": "mishandles lists of interfaces to include or exclude (open-mpi/ompi 13155)"}

ROW = CheckRow(
    id="BW200",
    name="mpirun-version",
    layer=Layer.LAUNCHER,
    title="mpirun next to busbw's Python, else the first on PATH",
    right="Open MPI 4 or 5",
    why="Command lines of Open MPI 4 and 5 differ: interface names, ssh options and variables changed with the daemons. A line written "
    "for the other version starts, and hangs.",
    fix="install Open MPI 4.1 or 5.0.8: pip install 'busbw[mpi]', or put its bin directory first in PATH",
    stays="set PATH in ~/.bashrc before its check for interactive shells; use the same version on all hosts",
    reads=("mpirun --version",),
    sources=("Open MPI 5 documentation, launching MPI applications",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The first mpirun."""
    found = programs.open_mpi(machine)
    if found is None:
        yield unread("", programs.open_mpi_reading(machine), "the version of mpirun")
        return
    evidence = Evidence(f"{found.path} --version", found.version or found.error, "Open MPI 4 or newer")
    if not found.path:
        yield skipped("no mpirun next to busbw's Python or on PATH; torchrun and srun need none")
    elif found.error:
        yield warned("", found.error, evidence, fix=ROW.fix)
    elif found.version in FAULTS:
        yield warned("", f"Open MPI {found.version} {FAULTS[found.version]}", evidence, fix=ROW.fix)
    else:
        yield passed("", f"Open MPI {found.version}", evidence)


CHECK = Check(ROW, look)
