"""The stages of the launch doctor in their order, and the command lines that work.

Stages here: every host can be logged into, has this busbw, and knows the names of the others;
mpirun starts processes, ranks exchange messages, NCCL starts, and an all_reduce is right. Those of
subnets and TCP are in `networks`.
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
    SHOW_PATH_MTU,
    LaunchContext,
    failed,
    parse_identity,
    passed,
    skipped,
    warned,
)
from busbw.check.shell_words import filled
from busbw.check.types import Diagnosis, Stage
from busbw.core.errors import BusbwError
from busbw.core.finding import Verdict
from busbw.core.host_ranges import listed
from busbw.core.program import single_file
from busbw.core.sizes import counted
from busbw.core.version import __version__
from busbw.launch import failures, interfaces, mpirun, remote
from busbw.launch.failures import known_error
from busbw.launch.hosts import LaunchHost, hosts_text, without_user
from busbw.launch.remote_ps import SSH_FAILED

# Open MPI 5 waits without end for a program that ends at once, in 1 of 60 starts on a busy host:
# PRRTE's daemon misses its end.
NAMES_ITSELF = ("sh", "-c", "hostname; sleep 1")
OPEN_PORTS_FIX = (
    "name the subnet that connects the hosts with --ifname CIDR; allow it in the firewall in both"
    " directions"
)
GPU_MISSING = (
    "on that host: nvidia-smi -L, and busbw check --layer gpu; or leave it out; --engine mpi tests"
    " CPUs"
)
SSH_PORT = 22
LOG_IN = (
    "ssh -o BatchMode=yes -o ConnectTimeout=5 {host} true   (must exit with 0, without a prompt)"
)
STARTUP_FILES = "the startup files of its shell on {host} must not exit or print"
SAME_PATH_FIX = (
    "install busbw at the same path on every host, copy it with busbw deploy, or use a shared file"
    " system: ssh {host} ls -l {path}"
)
HOSTS_FILE_FIX = (
    "in /etc/hosts on {host}, take {name} out of the line of {address}, and keep the other names of"
    " that line"
)
BANNER_S = 3.0  # sshd sends its banner at once
PROGRAM = ("python", "train.py")


def ifname(context: LaunchContext) -> str:
    """The value for --ifname: what the user chose, else the first subnet that works."""
    return context.ifname or (str(context.networks[0]) if context.networks else "")


def start(context: LaunchContext) -> Stage:
    """mpirun starts one process on each host, which prints the host's name."""
    one_each = tuple(LaunchHost(name, 1) for name in context.names)
    try:
        line = mpirun.command(mpirun.find(), NAMES_ITSELF, len(one_each), one_each, ifname(context))
    except BusbwError as error:
        return failed("mpirun", error.message, fix=error.hint)
    code, out, error_text = _run(line, context.limit_s)
    answered = sorted(out.split())
    expected = sorted(identity["hostname"] for identity in context.identities.values())
    if code == 0 and answered == expected:
        program = mpirun.find()
        message = f"{program.path} (Open MPI {program.version}) starts a process on each host"
        return passed("mpirun", message)
    if code is None:
        message = (
            f"mpirun did not end within {context.limit_s:g} s: its daemons cannot connect back to"
            " this host"
        )
        return failed("mpirun", message, " ".join(line), fix=OPEN_PORTS_FIX)
    cause = failures.launcher_error(code, error_text, context.names)
    evidence = (error_text.strip()[-300:], " ".join(line))
    return failed("mpirun", cause.message, *evidence, fix=cause.hint)


def ring(context: LaunchContext) -> Stage:
    """Ranks, one on each host, send two messages around a ring with MPI."""
    sweep = ["sendrecv", "--engine", "mpi", "-b", "8", "-e", "64K", "-f", "8192"]
    return _run_busbw(context, "mpi", sweep, per_host=1)


def nccl(context: LaunchContext) -> Stage:
    """NCCL creates a communicator over one GPU of each host."""
    if context.engine == "mpi":
        return skipped("nccl", "no GPUs were requested")
    if context.on_cpus:
        return skipped("nccl", "no NVIDIA GPU on any host")
    if context.without_gpus:
        message = f"no NVIDIA GPU on {listed(context.without_gpus)}"
        return failed("nccl", message, fix=GPU_MISSING)
    sweep = ["all_reduce", "--engine", "nccl", "-b", "8", "-e", "8"]
    return _run_busbw(context, "nccl", sweep, per_host=1)


def all_reduce(context: LaunchContext) -> Stage:
    """All ranks make a small all_reduce, and its data is verified."""
    engine = ["--engine", context.engine] if context.engine != "auto" else []
    sweep = ["all_reduce", *engine, "-b", "8", "-e", "1M", "-f", "131072"]
    return _run_busbw(context, "all_reduce", sweep, per_host=0)


def _run_busbw(context: LaunchContext, name: str, sweep: Sequence[str], per_host: int) -> Stage:
    """The stage `name`, in which `busbw run` measures a sweep.

    `per_host` is the number of ranks on each host, 0 for one on each slot.
    """
    hosts = hosts_text(
        [LaunchHost(host.name, per_host or host.slots or 1) for host in context.hosts]
    )
    limit = f"{context.limit_s:g}"
    words = ["run", *sweep, "--hosts", hosts, "--timing", "classic", "--iters", "5", "--brief"]
    words += ["--launch-limit", limit, "--limit", limit]
    if ifname(context):
        words += ["--ifname", ifname(context)]
    code, out, error = _run(remote.busbw(*words), 2 * context.limit_s + 10)
    if code == 0:
        lines = out.strip().splitlines()
        exchanged = f"{counted(len(context.hosts), 'host')} exchanged data"
        return passed(name, lines[-1] if lines else exchanged)
    problem, _, hint = error.partition("\nhint:")
    errors = [line for line in problem.splitlines() if line.startswith("error: ")]
    if code is None:
        message = f"no end within {2 * context.limit_s + 10:g} s"
    elif errors:
        message = errors[0].removeprefix("error: ")
    else:
        message = problem.strip()[-200:] or out.strip()[-200:]
    command = f"busbw {' '.join(words)}"
    fix = " ".join(hint.split()) or f"NCCL_DEBUG=INFO {command}"
    return failed(name, message, command, fix=fix)


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
        return None, _as_text(error.stdout), _as_text(error.stderr)
    except OSError as error:
        return 127, "", f"{line[0]}: {error.strerror}"
    return done.returncode, done.stdout, done.stderr


def _as_text(output: bytes | str | None) -> str:
    """What a process printed before it was killed, which may be undecoded."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def ssh(context: LaunchContext) -> Stage:
    """The launch agent reaches all hosts."""
    for done in context.on_all(["true"]):
        banner = _read_banner(done.host) if done.code is None else ""
        if banner:
            message = (
                f"{done.host}: sshd answers ('{banner}'), but ssh gets no further: the path may"
                " drop large packets"
            )
            return failed("ssh", message, done.error.strip()[-300:], fix=SHOW_PATH_MTU)
        if done.code == SSH_FAILED or done.code is None or done.code == 127:
            cause = known_error(done.error, [done.host])
            fix = cause.hint if cause else filled(LOG_IN, host=done.host)
            message = f"{done.host} cannot be logged into: {done.problem}"
            return failed("ssh", message, done.error.strip()[-300:], fix=fix)
        if done.code:
            fix = filled(STARTUP_FILES, host=done.host)
            message = f"on {done.host} every command in a login shell exits with {done.code}"
            return failed("ssh", message, done.error.strip()[-300:], fix=fix)
    hosts = counted(len(context.hosts), "host")
    return passed("ssh", f"{hosts} can be logged into without a prompt")


def _read_banner(host: str) -> str:
    """sshd's banner; '' if nothing answers on port 22."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((without_user(host), SSH_PORT), timeout=BANNER_S) as connection,
    ):
        connection.settimeout(BANNER_S)
        return connection.recv(255).decode("ascii", "replace").partition("\r")[0].strip()
    return ""


def install(context: LaunchContext) -> Stage:
    """Every host has the same version of busbw at the same path."""
    command = context.node("identity")
    asked = json.dumps({"names": [*map(without_user, context.names)]}).encode()
    for done in context.on_all(command, asked):
        try:
            context.identities[done.host] = parse_identity(done)
        except ValueError:
            problem, path = done.problem or "no answer", single_file() or command[0]
            message = f"{done.host}: {path} does not run busbw: {problem}"
            fix = filled(SAME_PATH_FIX, host=done.host, path=path)
            return failed("install", message, done.error.strip()[-300:], fix=fix)
    for host, identity in context.identities.items():
        version = identity["busbw"]
        if version != __version__:
            message = f"{host} has busbw {version}, this host {__version__}"
            return failed("install", message, fix="install the same version on all hosts")
    return passed("install", f"busbw {__version__} is at the same path on all hosts")


def names(context: LaunchContext) -> Stage:
    """Host names resolve on all hosts, and no host resolves its own name to a loopback address."""
    for host, identity in context.identities.items():
        asked = map(without_user, context.names)
        unresolved = [name for name in asked if not identity["names"].get(name)]
        if unresolved:
            fix = filled(
                "add {name} to /etc/hosts on {host}, or use addresses",
                name=unresolved[0],
                host=host,
            )
            return failed("names", f"{host} cannot resolve {unresolved[0]}", fix=fix)
    hostnames = {identity["hostname"] for identity in context.identities.values()}
    if len(hostnames) < len(context.identities):
        shared = listed(sorted(hostnames))
        message = f"several hosts have the name {shared}: launchers count them as one host"
        fix = "while no job runs there: hostnamectl set-hostname NAME, a different one on each"
        return failed("names", message, fix=fix)
    for host, identity in context.identities.items():
        name = identity["hostname"]
        addresses = identity["names"].get(name, [])
        if addresses and all(address.startswith("127.") for address in addresses):
            message = (
                f"{host} resolves its own name {name} to {addresses[0]}, where other hosts would"
                " reach themselves"
            )
            evidence = f"getent ahosts {name}: {', '.join(addresses)}"
            fix = filled(HOSTS_FILE_FIX, name=name, address=addresses[0], host=host)
            return warned("names", message, evidence, fix=fix)
    return passed("names", "all names resolve on all hosts")


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
    hosts = tuple(LaunchHost(host.name, host.slots or 1) for host in context.hosts)
    ranks = sum(host.slots for host in hosts)
    variables = _socket_variables(context)
    line = mpirun.command(mpirun.find(), PROGRAM, ranks, hosts, network, variables)
    line = _drop_variable(line, interfaces.VARIABLE)
    # Open MPI looks for a bare name on each host's own PATH, which lacks this environment's.
    line[-len(PROGRAM) : -len(PROGRAM)] = ["-x", "PATH"]
    lines = {"mpirun": shlex.join(line)}
    if len({host.slots for host in hosts}) > 1:
        return lines
    first = hosts[0].name
    if context.networks:
        first = context.addresses(context.networks[0])[first]
    sockets = "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())
    if shutil.which("srun"):
        lines["srun"] = (
            f"{sockets}srun --mpi=pmix -N {len(hosts)} --ntasks-per-node {hosts[0].slots}"
            f" {shlex.join(PROGRAM)}"
        )
    meeting = f"--rdzv-backend c10d --rdzv-endpoint {first}:29500"
    lines["torchrun, on each host"] = (
        f"{sockets}torchrun --nnodes {len(hosts)} --nproc-per-node {hosts[0].slots} {meeting}"
        " train.py"
    )
    return lines


def _socket_variables(context: LaunchContext) -> dict[str, str]:
    """Variables that let NCCL and Gloo use the first network that works, NCCL only with GPUs.

    Empty if its interface has different names on the hosts.
    """
    network = context.networks[0] if context.networks else None
    names = set()
    for identity in context.identities.values():
        for name, text in identity["addresses"].items():
            if IPv4Interface(text).network == network:
                names.add(name)
    if len(names) != 1:
        return {}
    name = names.pop()
    variables = {"GLOO_SOCKET_IFNAME": name}
    return variables if context.on_cpus else {"NCCL_SOCKET_IFNAME": f"={name}", **variables}


def _drop_variable(line: list[str], variable: str) -> list[str]:
    """The line without a variable that only busbw's own ranks read, and without its -x."""
    for at, word in enumerate(line):
        if word.startswith(f"{variable}="):
            return line[: at - 1] + line[at + 1 :]
    return line


def diagnosis(context: LaunchContext, stages_done: list[Stage]) -> Diagnosis:
    """The stages, and the command lines if no stage failed."""
    result = Diagnosis(hosts=context.names, stages=stages_done)
    if not result.failed:
        result.commands = commands(context)
    return result
