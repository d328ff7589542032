"""Finds Open MPI's mpirun and builds its command line, which differs between versions 4 and 5.

Checked against 5.0.11: PRRTE reads prte_if_include (one exact name or CIDR), PMIx reads
ptl_tcp_if_include.
"""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.host_ranges import listed
from busbw.core.program import install_hint
from busbw.core.secret_names import secret_name
from busbw.launch import interfaces
from busbw.launch.cleanup import MARKER
from busbw.launch.hosts import LaunchHost, without_user

SSH_ARGS = "-o BatchMode=yes -o ConnectTimeout=10"
# When a rank dies, Open MPI aborts the others of its host. The delay lets mpirun see the first
# death first.
ABORT_DELAY = ("--mca", "mpi_abort_delay", "1")  # seconds
# seconds idle, seconds between probes, lost probes: 25 s in total
KEEPALIVE = {"time": 10, "intvl": 5, "probes": 3}
VERSION_LIMIT_S = 20.0
OPEN_FILES_HINT = "ulimit -n 1024   (a launcher needs some 20 for itself, and 4 for each rank)"
_VERSION = re.compile(r"Open MPI\)?\s+v?(\d+)\.(\d+)(\.\d+)?")
_ADDRESS = re.compile(r".+@[0-9.]+")  # of a user
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_AGENTS = ("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm_ssh_agent", "PRTE_MCA_plm_ssh_agent")
_AGENT_ARGS = ("OMPI_MCA_plm_rsh_args", "OMPI_MCA_plm_ssh_args", "PRTE_MCA_plm_ssh_args")


def _install() -> str:
    return f"{install_hint('mpi')}, or install Open MPI 4.1 or newer"


@dataclass(frozen=True, slots=True)
class Mpirun:
    """One installed mpirun of Open MPI."""

    path: str
    major: int
    version: str


def find(search: Iterable[str] | None = None) -> Mpirun:
    """The mpirun next to this Python, else the first on PATH; or the first of `search` that exists.

    NoMeasurement if there is none, it does not respond, or it is not Open MPI 4 or newer.
    """
    path = located() if search is None else _first_executable(search)
    if not path:
        raise NoMeasurement(f"no mpirun next to {sys.executable} or on PATH", _install())
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            timeout=VERSION_LIMIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoMeasurement(
            f"{path} --version did not finish within {VERSION_LIMIT_S:g} s", _install()
        ) from error
    except OSError as error:
        files = error.errno in (errno.EMFILE, errno.ENFILE)
        raise NoMeasurement(
            f"{path} cannot be run: {error.strerror}", OPEN_FILES_HINT if files else _install()
        ) from error
    text = (done.stdout + done.stderr).decode(errors="replace")
    match = _VERSION.search(text)
    if match is None and "home directory" in text:
        raise NoMeasurement(
            f"{path} does not start: HOME is not set, and user {os.geteuid()} has no home",
            "export HOME=$(mktemp -d)",
        )
    if match is None or int(match.group(1)) < 4:
        first_line = text.strip().partition("\n")[0]
        raise NoMeasurement(
            f"{path} is not Open MPI 4 or newer: --version prints '{first_line}'", _install()
        )
    return Mpirun(path, int(match.group(1)), match.group(0).split()[-1].lstrip("v"))


def located() -> str:
    """The mpirun next to this Python, else the first on PATH; '' if there is none."""
    beside_python = str(Path(sys.executable).with_name("mpirun"))
    return _first_executable([beside_python, shutil.which("mpirun") or ""])


def _first_executable(paths: Iterable[str]) -> str:
    return next((path for path in paths if path and os.access(path, os.X_OK)), "")


def command(
    mpirun: Mpirun,
    program: Sequence[str],
    ranks: int,
    hosts: Sequence[LaunchHost] = (),
    ifname: str = "",
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that runs `program` on `ranks` ranks, on this machine or on `hosts`.

    The hosts have slots, see hosts.share. `env` is set on every rank. `ifname` is the user's
    --ifname. UsageError for an invalid variable name or interface.
    """
    line = [mpirun.path, "-n", str(ranks), "--bind-to", "none", *ABORT_DELAY]
    if os.geteuid() == 0:
        line.append("--allow-run-as-root")
    # Between hosts MPI must not use the network interfaces that NCCL is about to measure.
    line += _remote(mpirun, hosts, ifname, os.environ) if hosts else _local(mpirun, ranks)
    for name, value in {**(env or {}), **interfaces.variables(ifname)}.items():
        if not _VARIABLE.fullmatch(name):
            raise UsageError(
                f"'{name}' is not the name of an environment variable", "write NAME=VALUE"
            )
        # Other users of this host see the command line. mpirun takes a secret from its own
        # environment.
        inherited = secret_name(name) and os.environ.get(name) == value
        line += ["-x", name if inherited else f"{name}={value}"]
    return [*line, *program]


def marked(argv: Sequence[str], marker: str) -> list[str]:
    """The command line that gives ranks on other hosts the mark of their job too."""
    return [argv[0], "-x", f"{MARKER}={marker}", *argv[1:]]


def _local(mpirun: Mpirun, ranks: int) -> list[str]:
    # Shared memory only: no port is opened, and Open MPI saves the second that it takes to start
    # and stop all other transports.
    line = ["--mca", "pml", "ob1", "--mca", "btl", "sm,self" if mpirun.major >= 5 else "vader,self"]
    # Open MPI 4 looks for ssh or rsh at its start, which many containers lack.
    if mpirun.major < 5 and not any(map(shutil.which, ("ssh", "rsh"))):
        line += ["--mca", "plm", "isolated"]
    # Only if needed: ranks of an oversubscribed job yield the processor while they wait, which
    # costs latency.
    if ranks > _cores():
        line += ["--map-by", ":OVERSUBSCRIBE"] if mpirun.major >= 5 else ["--oversubscribe"]
    return line


def _remote(
    mpirun: Mpirun, hosts: Sequence[LaunchHost], ifname: str, environ: Mapping[str, str]
) -> list[str]:
    runtime, agent = ("--prtemca", "plm_ssh") if mpirun.major >= 5 else ("--mca", "plm_rsh")
    variable = "PRTE_MCA_plm" if mpirun.major >= 5 else "OMPI_MCA_plm"
    # Some images set it; mpirun then only reports too few slots.
    if environ.get(variable) == "isolated":
        raise UsageError(
            f"{variable}=isolated keeps Open MPI {mpirun.version} from starting ranks on other"
            " hosts",
            f"unset {variable}",
        )
    user = _user_of_all(hosts) if ssh_args(environ) else ""
    bare = [LaunchHost(without_user(host.name), host.slots) for host in hosts]
    line = ["--host", ",".join(map(str, bare if user else hosts))]
    line += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "coll", "^hcoll"]
    if ifname:
        have = interfaces.local()
        for_mpi = interfaces.for_mpi(ifname, have)
        line += ["--mca", "btl_tcp_if_include", for_mpi]
        if mpirun.major >= 5:
            for_prrte = interfaces.for_prrte(ifname, have)
            line += ["--prtemca", "prte_if_include", for_prrte]
            line += ["--pmixmca", "ptl_tcp_if_include", for_prrte]
        else:
            line += ["--mca", "oob_tcp_if_include", for_mpi]
    # The launching host starts all daemons itself: the hosts need no login to each other, and PRRTE
    # passes plm_ssh_args on truncated at its second '='.
    line += [runtime, f"{agent}_no_tree_spawn", "1"]
    # A daemon of an unreachable host exits with its ranks after this time; the defaults take 8
    # minutes.
    for name, seconds in KEEPALIVE.items():
        line += [runtime, f"oob_tcp_keepalive_{name}", str(seconds)]
    arguments = ssh_args(environ)
    if user:
        arguments = f"-l {user} {arguments}"
    return [*line, runtime, f"{agent}_args", arguments] if arguments else line


def _user_of_all(hosts: Sequence[LaunchHost]) -> str:
    """The user before the `@` of every host; '' for none, or several.

    UsageError for several with addresses: PRRTE 3 reads root@10.0.0.1 as a name in the domain
    0.0.1, and so takes root@10.0.0.2 for the same host.
    """
    users = {host.name.removesuffix(without_user(host.name)) for host in hosts}
    if len(users) == 1:
        return users.pop().removesuffix("@")
    addresses = [host.name for host in hosts if _ADDRESS.fullmatch(host.name)]
    if len(addresses) > 1:
        raise UsageError(
            f"--hosts {listed(addresses)}: Open MPI confuses addresses of several users",
            "give the hosts' names, or the same user for all, or set User in ~/.ssh/config",
        )
    return ""


def launch_agent(environ: Mapping[str, str]) -> str:
    """The program, with arguments, that starts daemons on other hosts.

    It is the first of Open MPI's list, such as `ssh : rsh`.
    """
    agents = next((environ[name] for name in _AGENTS if environ.get(name)), "")
    return agents.partition(":")[0].strip() or "ssh"


def ssh_args(environ: Mapping[str, str]) -> str:
    """Options for ssh as launch agent; '' for another agent.

    They are the user's options, then those that keep ssh from prompting.
    """
    if Path(launch_agent(environ).split()[0]).name != "ssh":
        return ""
    of_user = next((environ[name] for name in _AGENT_ARGS if environ.get(name)), "")
    return f"{of_user} {SSH_ARGS}".strip()


def _cores() -> int:
    """Physical cores of this machine, which Open MPI counts as slots.

    At most the processors that this process may use.
    """
    siblings = set()
    for cpu in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list"):
        try:
            siblings.add(cpu.read_text(encoding="ascii"))
        except OSError:  # the processor went offline
            continue
    usable = len(os.sched_getaffinity(0))
    return min(len(siblings) or usable, usable)
