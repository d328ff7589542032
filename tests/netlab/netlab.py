"""The emulated hosts of busbw.lab as tests use them: names differ from run to run, so that tests
may run side by side.

All hosts use all cores, and start programs on each other through the lab's agent or through sshd.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw import lab as library
from busbw.core.errors import NoMeasurement
from busbw.lab import building, host_exec, network, processes, state
from busbw.lab import types as lab_types

LIMIT_S = 20.0
SOURCE = str(Path(__file__).parents[2] / "src")
# bash does not read the ~/.bashrc of whoever runs the tests at each login by ssh
host_exec.YIELD["SHLVL"] = "1"
if "LD_PRELOAD" in os.environ:  # of conftest.py: ranks that wait sleep on emulated hosts too
    host_exec.YIELD["LD_PRELOAD"] = os.environ["LD_PRELOAD"]
Unavailable = NoMeasurement  # this machine cannot emulate hosts; the message gives the reason


@dataclass(frozen=True)
class Host:
    """One emulated host; its interface is called differently on each."""

    lab: lab_types.Lab
    record: lab_types.LabHost

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def namespace(self) -> str:
        return self.record.namespace

    @property
    def address(self) -> str:
        return self.record.address

    @property
    def interface(self) -> str:
        return self.record.interface

    def enter(self, *argv: str) -> list[str]:
        """The command line that runs `argv` on this host, in the same process."""
        return host_exec.enter(self.lab, self.record, *argv)

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """This thread, and what it starts, uses the host's network meanwhile."""
        from pyroute2 import netns  # not installed where no lab can be made

        netns.pushns(self.namespace)
        try:
            yield
        finally:
            netns.popns()

    def pids(self) -> list[int]:
        """Processes on this host."""
        return processes.inside(self.namespace)

    def empty_within(self, seconds: float) -> bool:
        """Whether all its processes have ended, waiting for it."""
        deadline = time.monotonic() + seconds
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.pids()


@dataclass(frozen=True)
class Lab:
    """The hosts, and the launch agent that replaces ssh between them: AGENT ADDRESS COMMAND."""

    record: lab_types.Lab

    @property
    def hosts(self) -> list[Host]:
        return [Host(self.record, host) for host in self.record.hosts]

    @property
    def switch(self) -> str:
        """The namespace of the bridge between more than two hosts."""
        return self.record.switch

    @property
    def folder(self) -> Path:
        return Path(self.record.folder)

    @property
    def agent(self) -> Path:
        return self.folder / "agent"

    def environment(self) -> dict[str, str]:
        """This process' environment, with what a host needs, and output without broken lines."""
        wide = {**os.environ, "COLUMNS": "1000"}
        return host_exec.environment(self.record, self.record.hosts[0], wide)


def busbw(
    lab: Lab, *words: str, limit_s: float = 120, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run busbw of this checkout on the first host."""
    return subprocess.run(
        lab.hosts[0].enter(sys.executable, "-m", "busbw", *words),
        env={**lab.environment(), "PYTHONPATH": SOURCE, **variables},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def check_programs() -> None:
    """Raise Unavailable, with the command that installs it, where a program that changes
    networks is missing, or the user is not root.
    """
    missing = [program for program in ("ip", "tc") if not shutil.which(program)]
    if missing:
        raise Unavailable(f"no {' nor '.join(missing)}: make test-tools")
    if os.geteuid() != 0:
        raise Unavailable("not root")


@contextlib.contextmanager
def lab(
    hosts: int = 2, rate_mbit: float | None = None, mtu: int = 9000, sshd: bool = False
) -> Iterator[Lab]:
    """`hosts` emulated hosts with addresses 10.77.0.1 on; `rate_mbit` limits what each sends.

    Everything is gone at the end, processes included. Unavailable where this machine cannot do it.
    """
    check_programs()
    token = uuid.uuid4().hex[:6]
    names = [f"h{number}-{token}" for number in range(1, hosts + 1)]
    spec = lab_types.LabSpec(
        name=f"test-{token}",
        names=names,
        shape=_shape(rate_mbit),
        mtu=mtu,
        sshd=sshd,
        gpus=0,
        share_cores=True,
    )
    with library.temporary_lab(spec) as lab_record:
        yield Lab(lab_record)


def limit(host: Host, rate_mbit: float) -> None:
    """Limit the sending rate of a host without a limit; Unavailable where the kernel cannot."""
    network.limit(host.record, _shape(rate_mbit))


def _shape(rate_mbit: float | None) -> lab_types.Shape:
    return lab_types.Shape(rate=rate_mbit * 1e6 / 8 if rate_mbit else None)


def ip(*words: str) -> str:
    """The output of `ip ARGUMENTS`; Unavailable if it fails."""
    done = subprocess.run(
        ["ip", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise Unavailable(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def namespaces(token: str, names: Sequence[str]) -> Iterator[None]:
    """Empty networks with a loopback that is up; gone at the end, with the processes in them.

    Unavailable.

    They count as a lab, so that they are gone with the next one if this process is killed.
    """
    spec = lab_types.LabSpec(name=f"test-{token}", names=list(names), sshd=False, gpus=0)
    hosts = [
        lab_types.LabHost(name=name, namespace=name, address="", interface="") for name in names
    ]
    folder, owner = str(state.folder(spec.name)), processes.mark(os.getpid())
    lab_record = lab_types.Lab(
        boot_id=state.boot_id(), token=token, folder=folder, spec=spec, hosts=hosts, owner=owner
    )
    try:
        with state.locked():
            state.write(lab_record)
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        with state.locked():
            building.remove(lab_record)


def second_cable(lab: Lab, rate_mbit: float) -> None:
    """Join both hosts once more, by interfaces with addresses 10.78.0.1 and 10.78.0.2."""
    names = [f"w{number}{uuid.uuid4().hex[:6]}" for number in (1, 2)]
    first, second = lab.hosts
    peer = ("peer", "name", names[1], "netns", second.namespace)
    ip("-n", first.namespace, "link", "add", names[0], "type", "veth", *peer)
    for number, (host, name) in enumerate(zip(lab.hosts, names, strict=True), start=1):
        ip("-n", host.namespace, "address", "add", f"10.78.0.{number}/24", "dev", name)
        ip("-n", host.namespace, "link", "set", name, "mtu", "9000", "up")
        network.limit(msgspec.structs.replace(host.record, interface=name), _shape(rate_mbit))
