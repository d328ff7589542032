"""Open MPI's mpirun: where it is, which major version, and the command line that version needs (4 and 5 differ).

Spellings of 5 were checked against 5.0.11: PRRTE honours prte_if_include (exact names or CIDR), PMIx honours ptl_tcp_if_include.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbw.core.errors import NoMeasurement, UsageError
from busbw.launch import interfaces
from busbw.launch.hosts import Host

SSH_ARGS = "-o BatchMode=yes -o ConnectTimeout=10"
# When a rank dies Open MPI has the others of its host abort, which may hide the death: they wait until mpirun has seen it.
ABORT_DELAY = ("--mca", "mpi_abort_delay", "1")  # seconds
KEEPALIVE = {"time": 10, "intvl": 5, "probes": 3}  # seconds idle, seconds between probes, probes lost: 25 s in all
VERSION_LIMIT_S = 20.0
INSTALL = f"{sys.executable} -m pip install 'busbw[mpi]', or install Open MPI 4.1 or newer"
_VERSION = re.compile(r"Open MPI\)?\s+v?(\d+)\.(\d+)(\.\d+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_AGENTS = ("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm_ssh_agent", "PRTE_MCA_plm_ssh_agent")
_AGENT_ARGS = ("OMPI_MCA_plm_rsh_args", "OMPI_MCA_plm_ssh_args", "PRTE_MCA_plm_ssh_args")


@dataclass(frozen=True, slots=True)
class Mpirun:
    """One installed mpirun of Open MPI."""

    path: str
    major: int
    version: str


def find(search: Iterable[str] | None = None) -> Mpirun:
    """The mpirun beside this Python, else the first on PATH (or the first of `search` that exists).

    NoMeasurement where there is none, it does not answer, or it is not Open MPI 4 or newer.
    """
    candidates = [str(Path(sys.executable).with_name("mpirun")), shutil.which("mpirun") or ""] if search is None else search
    path = next((one for one in candidates if one and os.access(one, os.X_OK)), None)
    if path is None:
        raise NoMeasurement(f"no mpirun beside {sys.executable} nor on PATH", INSTALL)
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=VERSION_LIMIT_S, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoMeasurement(f"{path} --version gave no answer within {VERSION_LIMIT_S:g} s", INSTALL) from error
    except OSError as error:
        raise NoMeasurement(f"{path} cannot be run: {error.strerror}", INSTALL) from error
    text = (done.stdout + done.stderr).decode(errors="replace")
    match = _VERSION.search(text)
    if match is None or int(match.group(1)) < 4:
        raise NoMeasurement(f"{path} is not Open MPI 4 or newer: it says '{text.strip().partition(chr(10))[0]}'", INSTALL)
    return Mpirun(path, int(match.group(1)), match.group(0).split()[-1].lstrip("v"))


def command(
    mpirun: Mpirun,
    program: Sequence[str],
    ranks: int,
    hosts: Sequence[Host] = (),
    ifname: str = "",
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that runs `program` on `ranks` ranks: on this machine, or on `hosts` (slots said: see hosts.share).

    `env` is set on every rank; `ifname` is --ifname as the user wrote it. UsageError for a variable's name or an
    interface that cannot be meant.
    """
    line = [mpirun.path, "-n", str(ranks), "--bind-to", "none", *ABORT_DELAY]
    if os.geteuid() == 0:
        line.append("--allow-run-as-root")
    # Local ranks keep MPI's own choice of transport, shared memory; between hosts MPI shall not touch what NCCL is about to measure.
    line += _remote(mpirun, hosts, ifname, os.environ) if hosts else _local(mpirun, ranks)
    for name, value in {**(env or {}), **interfaces.variables(ifname)}.items():
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"'{name}' is not the name of an environment variable", "write NAME=VALUE")
        line += ["-x", f"{name}={value}"]
    return [*line, *program]


def _local(mpirun: Mpirun, ranks: int) -> list[str]:
    # Ranks of one machine have shared memory; without the TCP transport they open no port.
    # Naming the transport also spares the second that Open MPI takes to start all others and end them.
    line = ["--mca", "pml", "ob1", "--mca", "btl", "sm,self" if mpirun.major >= 5 else "vader,self"]
    # Not always: a job marked as oversubscribed yields the processor while it waits, which costs latency.
    if ranks <= _cores():
        return line
    return [*line, *(["--map-by", ":OVERSUBSCRIBE"] if mpirun.major >= 5 else ["--oversubscribe"])]


def _remote(mpirun: Mpirun, hosts: Sequence[Host], ifname: str, environ: Mapping[str, str]) -> list[str]:
    runtime, agent = ("--prtemca", "plm_ssh") if mpirun.major >= 5 else ("--mca", "plm_rsh")
    launching = "PRTE_MCA_plm" if mpirun.major >= 5 else "OMPI_MCA_plm"
    if environ.get(launching) == "isolated":  # images have it; mpirun says no more than that hosts have too few slots
        raise UsageError(f"{launching}=isolated forbids Open MPI {mpirun.version} to start ranks on other hosts", f"unset {launching}")
    line = ["--host", ",".join(str(host) for host in hosts)]
    line += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "coll", "^hcoll"]
    if ifname:
        names = interfaces.for_mpi(ifname, interfaces.local())
        line += ["--mca", "btl_tcp_if_include", names]
        if mpirun.major >= 5:
            line += ["--prtemca", "prte_if_include", names, "--pmixmca", "ptl_tcp_if_include", names]
        else:
            line += ["--mca", "oob_tcp_if_include", names]
    # The launching host reaches all others itself: the hosts need not be able to log in to each other, and PRRTE hands plm_ssh_args on
    # to them cut off at its second '='.
    line += [runtime, f"{agent}_no_tree_spawn", "1"]
    # A daemon whose host is cut off ends by itself, with its ranks: the defaults take 8 minutes.
    for name, seconds in KEEPALIVE.items():
        line += [runtime, f"oob_tcp_keepalive_{name}", str(seconds)]
    arguments = ssh_args(environ)
    return [*line, runtime, f"{agent}_args", arguments] if arguments else line


def launch_agent(environ: Mapping[str, str]) -> str:
    """The program, with its arguments, that starts daemons on other hosts: the first of Open MPI's list such as `ssh : rsh`."""
    every = next((environ[name] for name in _AGENTS if environ.get(name)), "")
    return every.partition(":")[0].strip() or "ssh"


def ssh_args(environ: Mapping[str, str]) -> str:
    """Options for the launch agent: ssh never prompts and gives up after 10 s, after the user's own options; none for another agent."""
    if Path(launch_agent(environ).split()[0]).name != "ssh":
        return ""
    own = next((environ[name] for name in _AGENT_ARGS if environ.get(name)), "")
    return f"{own} {SSH_ARGS}".strip()


def _cores() -> int:
    """Physical cores of this machine, what Open MPI counts as slots; never more than the processors this process may use."""
    siblings = set()
    for cpu in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list"):
        try:
            siblings.add(cpu.read_text(encoding="ascii"))
        except OSError:  # the processor went offline meanwhile
            continue
    usable = len(os.sched_getaffinity(0))
    return min(len(siblings) or usable, usable)
