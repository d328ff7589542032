"""Stages: mpirun starts processes, ranks exchange messages, NCCL starts, all_reduce is right.

Stages: every host can be logged into, has this busbw, and knows the others' names.

The stages in their order, and the command lines that work.
"""

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Interface

from busbw.check.doctor import networks
from busbw.check.doctor.networks import (
    LARGER_THAN,
    LaunchContext,
    failed,
    identity,
    passed,
    skipped,
    warned,
)
from busbw.check.shell_words import filled
from busbw.check.types import Diagnosis, Stage
from busbw.core.errors import BusbwError
from busbw.core.finding import Verdict
from busbw.core.sizes import counted
from busbw.core.version import __version__
from busbw.launch import failures, interfaces, mpirun, remote
from busbw.launch.failures import known
from busbw.launch.hosts import Host
from busbw.launch.remote_ps import SSH_FAILED

# Open MPI 5 waits without end for a program that ends at once, in 1 of 60 starts on a busy host:
# PRRTE's daemon misses its end.
NAMES_ITSELF = ("sh", "-c", "hostname; sleep 1")
OPEN = (
    "name the subnet that connects the hosts with --ifname CIDR; allow it in the firewall in both"
    " directions"
)


def ifname(context: LaunchContext) -> str:
    """What the user chose, else the first subnet that works."""
    return context.ifname or (str(context.networks[0]) if context.networks else "")


def start(context: LaunchContext) -> Stage:
    """mpirun with one process on each host, which prints the host's name."""
    one_each = tuple(Host(name, 1) for name in context.names)
    try:
        line = mpirun.command(mpirun.find(), NAMES_ITSELF, len(one_each), one_each, ifname(context))
    except BusbwError as error:
        return failed("mpirun", error.message, fix=error.hint)
    code, out, error_text = _run(line, context.limit_s)
    answered = sorted(out.split())
    expected = sorted(said["hostname"] for said in context.identities.values())
    if code == 0 and answered == expected:
        return passed(
            "mpirun",
            f"{mpirun.find().path} (Open MPI {mpirun.find().version}) starts a process on each"
            " host",
        )
    if code is None:
        message = (
            f"mpirun did not end within {context.limit_s:g} s: its daemons cannot connect back to"
            " this host"
        )
        return failed("mpirun", message, " ".join(line), fix=OPEN)
    found = failures.explain(code, error_text, context.names)
    return failed(
        "mpirun", found.message, error_text.strip()[-300:], " ".join(line), fix=found.hint
    )


def ring(context: LaunchContext) -> Stage:
    """Two messages around a ring of one rank on each host, by MPI."""
    return _busbw(
        context,
        "mpi",
        ["sendrecv", "--engine", "mpi", "-b", "8", "-e", "64K", "-f", "8192"],
        per_host=1,
    )


def nccl(context: LaunchContext) -> Stage:
    """NCCL's communicator over one GPU of each host."""
    if context.engine == "mpi":
        return skipped("nccl", "no GPUs were requested")
    return _busbw(
        context, "nccl", ["all_reduce", "--engine", "nccl", "-b", "8", "-e", "8"], per_host=1
    )


def all_reduce(context: LaunchContext) -> Stage:
    """A small all_reduce over all ranks, verified."""
    engine = ["--engine", context.engine] if context.engine != "auto" else []
    return _busbw(
        context,
        "all_reduce",
        ["all_reduce", *engine, "-b", "8", "-e", "1M", "-f", "131072"],
        per_host=0,
    )


def _busbw(context: LaunchContext, name: str, sweep: Sequence[str], per_host: int) -> Stage:
    hosts = ",".join(str(Host(host.name, per_host or host.slots or 1)) for host in context.hosts)
    words = [
        "run",
        *sweep,
        "--hosts",
        hosts,
        "--timing",
        "classic",
        "--iters",
        "5",
        "--brief",
        "--launch-limit",
        f"{context.limit_s:g}",
    ]
    words += [
        "--limit",
        f"{context.limit_s:g}",
        *(["--ifname", ifname(context)] if ifname(context) else []),
    ]
    code, out, error = _run(remote.busbw(*words), 2 * context.limit_s + 10)
    if code == 0:
        return passed(
            name,
            (
                out.strip().splitlines()[-1]
                if out.strip()
                else f"{counted(len(context.hosts), 'host')} exchanged data"
            ),
        )
    said, _, hint = error.partition("\nhint:")
    message = next(
        (line.removeprefix("error: ") for line in said.splitlines() if line.startswith("error: ")),
        said.strip()[-200:] or out.strip()[-200:],
    )
    if code is None:
        message = f"no end within {2 * context.limit_s + 10:g} s"
    command = f"busbw {' '.join(words)}"
    return failed(
        name, message, command, fix=" ".join(hint.split()) or f"NCCL_DEBUG=INFO {command}"
    )


def _run(line: Sequence[str], limit_s: float) -> tuple[int | None, str, str]:
    """Exit code (None: killed after the limit), stdout and stderr."""
    try:
        done = subprocess.run(
            line,
            capture_output=True,
            text=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            env=os.environ,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        parts = (
            part.decode(errors="replace") if isinstance(part, bytes) else part or ""
            for part in (error.stdout, error.stderr)
        )
        out, text = parts
        return None, out, text
    except OSError as error:
        return 127, "", f"{line[0]}: {error.strerror}"
    return done.returncode, done.stdout, done.stderr


SSH_PORT = 22
SAME = (
    "install busbw at the same path on every host, or on a shared file system: ssh {host} ls -l"
    " {path}"
)
APART = (
    "in /etc/hosts on {host}, take {name} out of the line of {address}, and keep the other names of"
    " that line"
)
BANNER_S = 3.0  # sshd sends its banner at once


def ssh(context: LaunchContext) -> Stage:
    """The launch agent reaches all hosts."""
    for done in context.on_all(["true"]):
        if done.code is None and (banner := _banner(done.host)):
            message = (
                f"{done.host}: sshd answers ('{banner}'), but ssh gets no further: the path may"
                " drop large packets"
            )
            return failed("ssh", message, done.error.strip()[-300:], fix=LARGER_THAN)
        if done.code == SSH_FAILED or done.code is None or done.code == 127:
            found = known(done.error, [done.host])
            fix = (
                found.hint
                if found
                else filled(
                    "ssh -o BatchMode=yes -o ConnectTimeout=5 {host} true   (must exit with 0,"
                    " without a prompt)",
                    host=done.host,
                )
            )
            return failed(
                "ssh",
                f"{done.host} cannot be logged into: {done.problem}",
                done.error.strip()[-300:],
                fix=fix,
            )
        if done.code:
            fix = filled(
                "the startup files of its shell on {host} must not exit or print", host=done.host
            )
            message = f"on {done.host} every command in a login shell exits with {done.code}"
            return failed("ssh", message, done.error.strip()[-300:], fix=fix)
    return passed(
        "ssh", f"{counted(len(context.hosts), 'host')} can be logged into without a prompt"
    )


def _banner(host: str) -> str:
    """sshd's banner; '' if nothing answers on port 22."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, SSH_PORT), timeout=BANNER_S) as connection,
    ):
        connection.settimeout(BANNER_S)
        return connection.recv(255).decode("ascii", "replace").partition("\r")[0].strip()
    return ""


def install(context: LaunchContext) -> Stage:
    """The same busbw is at the same path."""
    asked = context.node("identity")
    for done in context.on_all(asked, json.dumps({"names": context.names}).encode()):
        try:
            context.identities[done.host] = identity(done)
        except ValueError:
            message = f"{done.host}: {asked[0]} does not run busbw: {done.problem or 'no answer'}"
            fix = filled(SAME, host=done.host, path=asked[0])
            return failed("install", message, done.error.strip()[-300:], fix=fix)
    other = {
        host: said["busbw"]
        for host, said in context.identities.items()
        if said["busbw"] != __version__
    }
    if other:
        host, version = next(iter(other.items()))
        return failed(
            "install",
            f"{host} has busbw {version}, this host {__version__}",
            fix="install the same version on all hosts",
        )
    return passed("install", f"busbw {__version__} is at the same path on all hosts")


def names(context: LaunchContext) -> Stage:
    """Host names resolve on all hosts, and no host resolves its own name to a loopback address."""
    for host, said in context.identities.items():
        unresolved = [name for name in context.names if not said["names"].get(name)]
        if unresolved:
            fix = filled(
                "add {name} to /etc/hosts on {host}, or use addresses",
                name=unresolved[0],
                host=host,
            )
            return failed("names", f"{host} cannot resolve {unresolved[0]}", fix=fix)
    twice = {said["hostname"] for said in context.identities.values()}
    if len(twice) < len(context.identities):
        shared = ", ".join(sorted(twice))
        message = f"several hosts have the name {shared}: launchers count them as one host"
        fix = "while no job runs there: hostnamectl set-hostname NAME, a different one on each"
        return failed("names", message, fix=fix)
    for host, said in context.identities.items():
        own = said["names"].get(said["hostname"], [])
        if own and all(address.startswith("127.") for address in own):
            message = (
                f"{host} resolves its own name {said['hostname']} to {own[0]}, where other hosts"
                " would reach themselves"
            )
            fix = filled(APART, name=said["hostname"], address=own[0], host=host)
            return warned(
                "names", message, f"getent ahosts {said['hostname']}: {', '.join(own)}", fix=fix
            )
    return passed("names", "all names resolve on all hosts")


PROGRAM = ("python", "train.py")
STAGES: tuple[Callable[[LaunchContext], Stage], ...] = (
    ssh, install, names, networks.subnets, networks.tcp,
    start, ring, nccl, all_reduce,
)  # fmt: skip


def stages(context: LaunchContext) -> Iterator[Stage]:
    """Each stage as it ends, up to the first that fails."""
    for stage in STAGES:
        done = stage(context)
        yield done
        if done.verdict is Verdict.FAIL:
            return


def commands(context: LaunchContext) -> dict[str, str]:
    """Command lines for the user's program over these hosts, on the network that works."""
    network = ifname(context)
    hosts = tuple(Host(host.name, host.slots or 1) for host in context.hosts)
    ranks = sum(host.slots for host in hosts)
    own = _sockets(context)
    line = mpirun.command(mpirun.find(), PROGRAM, ranks, hosts, network, own)
    found = {"mpirun": shlex.join(_without(line, interfaces.VARIABLE))}
    if len({host.slots for host in hosts}) > 1:
        return found
    first = (
        context.addresses(context.networks[0])[hosts[0].name] if context.networks else hosts[0].name
    )
    sockets = "".join(f"{name}={shlex.quote(value)} " for name, value in own.items())
    if shutil.which("srun"):
        found["srun"] = (
            f"{sockets}srun --mpi=pmix -N {len(hosts)} --ntasks-per-node {hosts[0].slots}"
            f" {shlex.join(PROGRAM)}"
        )
    meeting = f"--rdzv-backend c10d --rdzv-endpoint {first}:29500"
    found["torchrun, on each host"] = (
        f"{sockets}torchrun --nnodes {len(hosts)} --nproc-per-node {hosts[0].slots} {meeting}"
        " train.py"
    )
    return found


def _sockets(context: LaunchContext) -> dict[str, str]:
    """Variables that let NCCL and Gloo use the network.

    None if its interface has different names on the hosts.
    """
    network = context.networks[0] if context.networks else None
    named = {
        name
        for said in context.identities.values()
        for name, text in said["addresses"].items()
        if IPv4Interface(text).network == network
    }
    if len(named) != 1:
        return {}
    name = named.pop()
    return {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name}


def _without(line: list[str], variable: str) -> list[str]:
    """The line without a variable that only busbw's own ranks read."""
    at = next((index for index, word in enumerate(line) if word.startswith(f"{variable}=")), None)
    return line if at is None else line[: at - 1] + line[at + 1 :]


def diagnosis(context: LaunchContext, done: list[Stage]) -> Diagnosis:
    """The stages with the command lines, if none failed."""
    found = Diagnosis(hosts=context.names, stages=done)
    if not found.failed:
        found.commands = commands(context)
    return found
