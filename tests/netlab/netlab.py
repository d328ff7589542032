"""Emulated hosts on one machine: a network and a host name of its own each, joined by veth pairs, optionally limited in rate.

Two hosts are joined directly, more by a bridge. Names differ from run to run, so tests may run side by side; addresses may repeat,
since no two labs share a network.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NETWORK = "10.77.0.0/24"
LIMIT_S = 20.0
_SYS = "mount -t sysfs sysfs /sys"  # /sys/class/net shows the network in which it was mounted


class Unavailable(Exception):
    """This machine cannot emulate hosts; the message gives the reason."""


@dataclass(frozen=True)
class Host:
    """One emulated host; its interface is called differently on each."""

    name: str
    namespace: str
    address: str
    interface: str

    def enter(self, *argv: str) -> list[str]:
        """The command line that runs `argv` on this host, in the same process."""
        script = f'hostname "$0" && {_SYS} && exec "$@"'
        return ["nsenter", f"--net=/var/run/netns/{self.namespace}", "unshare", "--uts", "--mount", "sh", "-c", script, self.name, *argv]

    def pids(self) -> list[int]:
        """Processes on this host."""
        return [int(pid) for pid in ip("netns", "pids", self.namespace).split()]

    def empty_within(self, seconds: float) -> bool:
        """Whether all its processes have ended, waiting for it."""
        deadline = time.monotonic() + seconds
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.pids()


@dataclass(frozen=True)
class Lab:
    """The hosts, and the launch agent that replaces ssh between them: AGENT ADDRESS COMMAND."""

    hosts: list[Host]
    agent: Path

    def environment(self) -> dict[str, str]:
        """This process' environment, with Open MPI 4's and 5's settings to use the agent.

        All hosts share this machine's cores without knowing it: waiting ranks must yield.
        """
        agents = {"PRTE_MCA_plm_ssh_agent": str(self.agent), "OMPI_MCA_plm_rsh_agent": str(self.agent)}
        return {**os.environ, **agents, "OMPI_MCA_mpi_yield_when_idle": "1"}


def ip(*words: str) -> str:
    """The output of `ip ARGUMENTS`; Unavailable if it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise Unavailable(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def lab(folder: Path, hosts: int = 2, rate_mbit: float | None = None, mtu: int = 9000) -> Iterator[Lab]:
    """`hosts` emulated hosts with addresses 10.77.0.1 on; `rate_mbit` limits what each sends. `folder` takes the agent's script.

    Everything is gone at the end, processes included. Unavailable where this machine cannot do it.
    """
    missing = [program for program in ("ip", "nsenter", "unshare", *(["tc"] if rate_mbit else [])) if not shutil.which(program)]
    if os.geteuid() != 0 or missing:
        raise Unavailable(f"no {' nor '.join(missing)} here" if missing else "not root")
    token = uuid.uuid4().hex[:6]
    with contextlib.ExitStack() as undo:
        made = [_host(token, number, undo) for number in range(1, hosts + 1)]
        _join(made, token, undo)
        for host in made:
            ip("-n", host.namespace, "link", "set", host.interface, "mtu", str(mtu), "up")
            ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.interface)
            if rate_mbit:
                limit(host, rate_mbit)
        yield Lab(made, _agent(folder, made))


def _host(token: str, number: int, undo: contextlib.ExitStack) -> Host:
    host = Host(f"h{number}-{token}", f"bb{token}h{number}", f"10.77.0.{number}", f"v{token}{number}")
    namespace(host.namespace, undo)
    return host


def namespace(name: str, undo: contextlib.ExitStack) -> None:
    """An empty network with a loopback that is up; gone when `undo` ends, with the processes in it. Unavailable."""
    ip("netns", "add", name)
    undo.callback(_remove, name)
    ip("-n", name, "link", "set", "lo", "up")


def _join(hosts: list[Host], token: str, undo: contextlib.ExitStack) -> None:
    if len(hosts) == 2:
        first, second = hosts
        ip("link", "add", first.interface, "netns", first.namespace, "type", "veth", "peer", second.interface, "netns", second.namespace)
        return
    switch = f"bb{token}sw"
    namespace(switch, undo)
    ip("-n", switch, "link", "add", "br0", "type", "bridge")
    ip("-n", switch, "link", "set", "br0", "mtu", "9000", "up")
    for number, host in enumerate(hosts):
        port = f"p{number}"
        ip("link", "add", host.interface, "netns", host.namespace, "type", "veth", "peer", port, "netns", switch)
        ip("-n", switch, "link", "set", port, "mtu", "9000", "master", "br0", "up")


def limit(host: Host, rate_mbit: float) -> None:
    """Limit the sending rate of a host; Unavailable where tc cannot."""
    shape = ["tbf", "rate", f"{rate_mbit:g}mbit", "burst", "256kb", "latency", "20ms"]
    words = ["tc", "-n", host.namespace, "qdisc", "add", "dev", host.interface, "root", *shape]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip()}")


def _agent(folder: Path, hosts: list[Host]) -> Path:
    """An executable that runs `COMMAND...` on the host with an address, as `ssh ADDRESS COMMAND...` would: without this environment."""
    cases = "\n".join(f"{host.address}|{host.name}) namespace={host.namespace} name={host.name};;" for host in hosts)
    script = f"""#!/bin/sh
host=$1; shift
case $host in
{cases}
*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255;;
esac
exec env -i PATH="$PATH" HOME="$HOME" nsenter --net=/var/run/netns/$namespace unshare --uts --mount sh -c "hostname $name; {_SYS}; $*"
"""
    path = folder / "agent"
    path.write_text(script)
    path.chmod(0o755)
    return path


def _remove(namespace: str) -> None:
    with contextlib.suppress(Unavailable, subprocess.TimeoutExpired):
        for pid in ip("netns", "pids", namespace).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        ip("netns", "del", namespace)
