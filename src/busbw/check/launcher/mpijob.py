"""What a Kubeflow MPIJob sets for Open MPI."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, no_environment, passed, skipped, unread, warned
from busbw.check.launcher import programs
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.errors import UsageError
from busbw.launch.hosts import parse_hostfile

HOSTFILE = "OMPI_MCA_orte_default_hostfile"
OTHERS = ("OMPI_MCA_plm_rsh_args", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots")
MISSING = "no such file or directory"

ROW = CheckRow(
    id="BW208",
    name="mpijob",
    layer=Layer.LAUNCHER,
    title="hostfile and variables of an MPIJob",
    right="a hostfile with one line per worker, and the operator's variables unchanged",
    why="The launcher of an MPIJob finds its workers in the hostfile. If it starts before the workers' names are in DNS, ssh fails and "
    "the job restarts. launcherCreationPolicy: WaitForWorkersReady prevents that. Open MPI 5 translates the variables' names.",
    fix="in the MPIJob: mpiImplementation: OpenMPI, slotsPerWorker: 8",
    stays="in the manifest of the MPIJob",
    reads=("environment", f"${HOSTFILE}", "mpirun --version"),
    sources=("kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The hostfile, if this is the launcher of an MPIJob."""
    if machine.environment is None:
        yield no_environment()
        return
    path = machine.environment.get(HOSTFILE)
    if not path:
        yield skipped("this is not the launcher of an MPIJob")
        return
    reading, evidence = machine.read(path), Evidence(f"${HOSTFILE}", path)
    if reading.text is None and not reading.reason.endswith(MISSING):
        yield unread("", reading, "the hostfile")
        return
    try:
        hosts = parse_hostfile(reading.text or "", path)
    except UsageError as error:
        what = f"{path} does not exist" if reading.text is None else str(error)
        yield failed("", f"{what}: mpirun has no workers", evidence, fix=ROW.fix)
        return
    lost = [name for name in OTHERS if name not in machine.environment]
    listed = Evidence(path, ", ".join(map(str, hosts)))
    found = programs.open_mpi(machine)
    if lost:
        yield warned("", f"the operator's {', '.join(lost)} is missing", evidence, listed, fix=ROW.fix)
    else:
        five = "; Open MPI 5 translates the names of the variables" if found and found.major >= 5 else ""
        yield passed("", f"{len(hosts)} workers{five}", evidence, listed)


CHECK = Check(ROW, look)
