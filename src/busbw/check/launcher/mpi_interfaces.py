"""Open MPI interfaces set by variables."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, no_environment, passed, warned
from busbw.check.launcher import parameters, programs
from busbw.check.machine import Machine
from busbw.check.shell_words import assignment, word
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW206",
    name="mpi-interfaces",
    layer=Layer.LAUNCHER,
    title="interfaces in OMPI_MCA_ and PRTE_MCA_ variables",
    right="the same for MPI and for its daemons; either an include or an exclude list",
    why="btl_tcp_if_include is only for MPI's own traffic. The daemons choose for themselves, perhaps docker0 or an interface behind a "
    "firewall, and mpirun hangs without output. An include and an exclude list together are an error. An exclude list without lo keeps "
    "MPI from sending over TCP.",
    fix="export OMPI_MCA_oob_tcp_if_include={netdev}",
    stays="set it in the job script, or in Open MPI's openmpi-mca-params.conf",
    reads=("environment", "mpirun --version"),
    sources=("Open MPI documentation, TCP, and general run-time support notes", "PRRTE, prte_if_include"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variables together."""
    if machine.environment is None:
        yield no_environment()
        return
    every = parameters.of_environment(machine.environment)
    found = programs.open_mpi(machine)
    major = found.major if found else 0
    both, half = parameters.contradiction(every), parameters.unset_half(every, major)
    looped = parameters.without_loopback(every)
    if both:
        message = f"{both[0].where} and {both[1].where} exclude each other"
        yield failed("", message, *(Evidence(one.where, one.value) for one in both), fix=f"unset {word(both[1].where.removeprefix('$'))}")
    elif looped:
        message = f"{looped.where}={looped.value} has no loopback interface: MPI cannot send over TCP"
        yield failed(
            "",
            message,
            Evidence(looped.where, looped.value, "lo in it"),
            fix=f"export {assignment(looped.where[1:], f'{looped.value},lo')}",
        )
    elif half:
        message = f"{half.where}={half.value} does not set the interface of the daemons"
        fix = f"export {parameters.variables(parameters.for_daemons(half, major))}"
        yield warned("", message, Evidence(half.where, half.value), fix=fix)
    elif crash := parameters.crashing(every, major):
        message = f"{crash.where}={crash.value}: mpirun of Open MPI 5 crashes with more than one interface for its daemons"
        fix = f"with the subnet that connects the hosts: export {assignment(crash.where[1:].replace('exclude', 'include'), '10.1.0.0/16')}"
        yield failed("", message, Evidence(crash.where, crash.value, "one name or network"), fix=fix)
    else:
        seen = [Evidence(one.where, one.value) for one in every if "_if_" in one.name]
        yield passed("", "interfaces agree" if seen else "no variable sets an interface of Open MPI", *seen)


CHECK = Check(ROW, look)
