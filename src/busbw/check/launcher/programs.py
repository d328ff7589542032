"""The programs of launchers that checks ask: mpirun, srun, ssh and getent.

The checks here are those of Slurm and of Kubeflow's MPIJob.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Finding
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.finding import CheckRow, Layer
from busbw.host.source import Reading, Unavailable
from busbw.launch import mpirun, slurm
from busbw.launch.hostfile import parse_hostfile

LIMIT_S = 10.0
LOOKUPS_PER_NAME = 3  # of a name; one may miss a server that answers only some of them
# What srun prints without slurm.conf, and without a server that has one.
UNCONFIGURED = "Could not establish a configuration source"
HOSTFILE = "OMPI_MCA_orte_default_hostfile"
OPERATOR_VARIABLES = (
    "OMPI_MCA_plm_rsh_args",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
)
MISSING = "no such file or directory"


@dataclass(frozen=True, slots=True)
class OpenMpi:
    """One mpirun. `path` is '' if there is none.

    `error` says why it is not Open MPI 4 or newer.
    """

    path: str
    version: str = ""
    error: str = ""

    @property
    def major(self) -> int:
        """4 or 5; 0 if there is no usable one."""
        return int(self.version.partition(".")[0] or 0)


def open_mpi_reading(machine: Machine) -> Reading:
    """The mpirun that `busbw run` starts, as JSON of an OpenMpi."""
    return machine.call("mpirun", lambda: _probe_mpirun(mpirun.located()))


def open_mpi(machine: Machine) -> OpenMpi | None:
    """The mpirun that `busbw run` starts: the one next to its Python, else the first on PATH.

    None if a snapshot lacks it. Other hosts run busbw by its path, and their PATH is that of a
    shell without a login.
    """
    text = open_mpi_reading(machine).text
    return None if text is None else OpenMpi(**json.loads(text))


def shell_open_mpi(machine: Machine) -> OpenMpi | None:
    """The mpirun that a shell of this machine starts.

    A snapshot has only the mpirun of `open_mpi`.
    """
    text = machine.call("mpirun on PATH", lambda: _probe_mpirun(shutil.which("mpirun") or "")).text
    return open_mpi(machine) if text is None else OpenMpi(**json.loads(text))


def _probe_mpirun(path: str) -> str:
    if not path:
        return json.dumps({"path": ""})
    try:
        return json.dumps({"path": path, "version": mpirun.find([path]).version})
    except NoMeasurement as error:
        return json.dumps({"path": path, "error": str(error)})


def pmix_listing() -> str:
    """What `srun --mpi=list` prints; '' without srun.

    Raises Unavailable if it fails or does not answer in time.
    """
    return _run_program("srun", "--mpi=list")


def own_addresses(hostname: str) -> str:
    """Addresses of the host's name as the resolver sees them, in lines of `getent ahosts`.

    '' if it does not resolve.
    """
    if shutil.which("getent") is None:
        raise Unavailable("getent is not installed")
    return _run_program("getent", "ahosts", hostname)


def reverse_lookups(hostname: str) -> str:
    """Seconds of the slowest lookup of the name of each own IPv4 address, as JSON.

    Addresses have the form in which a dual-stack server sees them.
    """
    addresses = {line.split()[0] for line in own_addresses(hostname).splitlines() if line.strip()}
    ipv4 = {"127.0.0.1"} | {address for address in addresses if ":" not in address}
    seconds = {f"::ffff:{address}": 0.0 for address in sorted(ipv4)}
    for address in seconds:
        for _ in range(LOOKUPS_PER_NAME):
            begun = time.monotonic()
            with contextlib.suppress(Unavailable):  # LIMIT_S have passed
                _run_program("getent", "hosts", address)
            seconds[address] = max(seconds[address], round(time.monotonic() - begun, 3))
    return json.dumps(seconds)


def ssh_login() -> str:
    """ssh's path, whether an agent runs, and the permissions of private keys in ~/.ssh, as JSON.

    No key is read.
    """
    folder = Path("~/.ssh").expanduser()
    try:
        keys = {
            path.name: path.stat().st_mode & 0o777
            for path in folder.glob("id_*")
            if path.suffix != ".pub"
        }
    except OSError as error:
        raise Unavailable(f"{folder}: {error.strerror}") from error
    ssh, agent = shutil.which("ssh") or "", bool(os.environ.get("SSH_AUTH_SOCK"))
    return json.dumps({"ssh": ssh, "agent": agent, "keys": keys})


def _run_program(program: str, *arguments: str) -> str:
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{path} did not finish within {LIMIT_S:g} s") from error
    except OSError as error:
        raise Unavailable(f"{path} cannot be run: {error.strerror}") from error
    if program != "srun":  # getent ends with a code above 0 for a name that it does not know
        return done.stdout.strip()
    text = (done.stdout + done.stderr).strip()
    if done.returncode:
        last_line = text.rpartition("\n")[2]
        raise Unavailable(f"{path} ended with exit code {done.returncode}: {last_line}")
    return text


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
def check_slurm_mpi(machine: Machine) -> Iterator[Finding]:
    """Whether pmix is among the plugins that srun lists."""
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
def check_mpijob(machine: Machine) -> Iterator[Finding]:
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
        problem = f"{path} does not exist" if reading.text is None else str(error)
        yield failed("", f"{problem}: mpirun has no workers", evidence, fix=MPIJOB.fix)
        return
    absent = [name for name in OPERATOR_VARIABLES if name not in environment]
    listed = Evidence(path, ", ".join(map(str, hosts)))
    mpirun = open_mpi(machine)
    if absent:
        yield warned(
            "", f"the operator's {', '.join(absent)} is missing", evidence, listed, fix=MPIJOB.fix
        )
    else:
        translated = ""
        if mpirun and mpirun.major >= 5:
            translated = "; Open MPI 5 translates the names of the variables"
        yield passed("", f"{len(hosts)} workers{translated}", evidence, listed)
