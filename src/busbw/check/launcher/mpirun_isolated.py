"""A setting in some images that keeps mpirun on its own host."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, no_environment, passed
from busbw.check.launcher import programs
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

VARIABLES = {"OMPI_MCA_plm": 4, "PRTE_MCA_plm": 5}

ROW = CheckRow(
    id="BW201",
    name="mpirun-isolated",
    layer=Layer.LAUNCHER,
    title="OMPI_MCA_plm and PRTE_MCA_plm",
    right="not isolated",
    why="With isolated, mpirun starts ranks on its own host only. With several hosts it only reports too few slots.",
    fix="unset {variable}",
    stays="remove it from the image's environment, or unset it in the job script",
    reads=("environment", "mpirun --version"),
    sources=("Open MPI documentation, MCA parameters of plm",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable of the installed Open MPI, or both if its version is unknown."""
    if machine.environment is None:
        yield no_environment()
        return
    found = programs.open_mpi(machine)
    major = found.major if found else 0
    set_to = {name: machine.environment.get(name, "") for name, of in VARIABLES.items() if major in (0, of)}
    isolated = [name for name, value in set_to.items() if value == "isolated"]
    for name in isolated:
        message = f"{name}=isolated: mpirun starts no rank on another host"
        yield failed("", message, Evidence(f"${name}", "isolated", "not set"), fix=f"unset {name}")
    if not isolated:
        yield passed(
            "", "mpirun may start ranks on other hosts", *(Evidence(f"${name}", value or "not set") for name, value in set_to.items())
        )


CHECK = Check(ROW, look)
