"""Slurm, and Kubeflow's MPIJob."""

from collections.abc import Iterator

from busbw.check.base import (
    ENVIRONMENT,
    check,
    failed,
    not_offered,
    passed,
    skipped,
    unread,
    warned,
)
from busbw.check.launcher import programs
from busbw.check.launcher.programs import pmix_listing
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.errors import NoMeasurement, UsageError
from busbw.launch import slurm
from busbw.launch.hosts import parse_hostfile

# Srun without slurm.conf, and without a server that has one.
UNCONFIGURED = "Could not establish a configuration source"

SLURM_MPI = CheckRow(
    id="BW205",
    name="slurm-mpi",
    layer=Layer.LAUNCHER,
    title="srun's MPI plugins",
    right="pmix is among them",
    why=(
        "Open MPI 5 ranks find each other only through PMIx. Without the plugin each rank runs as a"
        " separate job of size one."
    ),
    fix="install the plugin mpi/pmix of Slurm, or start the ranks with mpirun inside salloc",
    stays="permanent once installed; MpiDefault=pmix in slurm.conf makes it the default",
    reads=("srun --mpi=list",),
    sources=("Slurm, MPI users guide", "Open MPI 5 documentation, launching with Slurm"),
)


@check(SLURM_MPI)
def check_slurm_mpi(machine: Machine) -> Iterator[Found]:
    """What srun lists."""
    reading = machine.call("srun-mpi", pmix_listing)
    if reading.text is None:
        if UNCONFIGURED in reading.reason:
            yield not_offered(
                "", f"this host is in no Slurm cluster: {reading.reason}", fix="scontrol ping"
            )
        else:
            yield unread("", reading, "srun's list of MPI plugins", fix="scontrol ping")
        return
    if not reading.text:
        yield skipped("no srun on PATH")
        return
    evidence = Evidence("srun --mpi=list", " ".join(reading.text.split()), "pmix")
    try:
        yield passed("", f"srun has {slurm.pmix(reading.text)}", evidence)
    except NoMeasurement as error:
        yield warned("", str(error), evidence, fix=SLURM_MPI.fix)


HOSTFILE = "OMPI_MCA_orte_default_hostfile"
OPERATOR_VARIABLES = (
    "OMPI_MCA_plm_rsh_args",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
)
MISSING = "no such file or directory"

MPIJOB = CheckRow(
    id="BW208",
    name="mpijob",
    layer=Layer.LAUNCHER,
    title="hostfile and variables of an MPIJob",
    right="a hostfile with one line per worker, and the operator's variables unchanged",
    why=(
        "The launcher of an MPIJob finds its workers in the hostfile. If it starts before the "
        "workers' names are in DNS, ssh fails and the job restarts. launcherCreationPolicy: "
        "WaitForWorkersReady prevents that. Open MPI 5 translates the variables' names."
    ),
    fix="in the MPIJob: mpiImplementation: OpenMPI, slotsPerWorker: 8",
    stays="in the manifest of the MPIJob",
    reads=("environment", f"${HOSTFILE}", "mpirun --version"),
    sources=("kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go",),
)


@check(MPIJOB, needs=ENVIRONMENT)
def check_mpijob(machine: Machine) -> Iterator[Found]:
    """The hostfile, if this is the launcher of an MPIJob."""
    environment = machine.environment or {}
    path = environment.get(HOSTFILE)
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
        yield failed("", f"{what}: mpirun has no workers", evidence, fix=MPIJOB.fix)
        return
    lost = [name for name in OPERATOR_VARIABLES if name not in environment]
    listed = Evidence(path, ", ".join(map(str, hosts)))
    found = programs.open_mpi(machine)
    if lost:
        yield warned(
            "", f"the operator's {', '.join(lost)} is missing", evidence, listed, fix=MPIJOB.fix
        )
    else:
        five = (
            "; Open MPI 5 translates the names of the variables"
            if found and found.major >= 5
            else ""
        )
        yield passed("", f"{len(hosts)} workers{five}", evidence, listed)
