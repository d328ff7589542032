"""The stages in their order, and the command lines that work."""

import shlex
import shutil
from collections.abc import Callable, Iterator
from ipaddress import IPv4Interface

from busbw.check.doctor import launching, login, networks
from busbw.check.doctor.launch_context import LaunchContext
from busbw.check.types import Diagnosis, Stage
from busbw.core.finding import Verdict
from busbw.launch import interfaces, mpirun
from busbw.launch.hosts import Host

PROGRAM = ("python", "train.py")
STAGES: tuple[Callable[[LaunchContext], Stage], ...] = (
    login.ssh, login.install, login.names, networks.subnets, networks.tcp,
    launching.start, launching.ring, launching.nccl, launching.all_reduce,
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
    network = launching.ifname(context)
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
