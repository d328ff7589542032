"""Labs: hosts emulated on one machine.

What was asked for, what was made, and what is kept of it on disk.

Seconds, and bytes per second.

Labs: what each of their hosts is, and how to use it.
"""

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.errors import UsageError
from busbw.core.sizes import counted
from busbw.link.types import bits_text
from busbw.ui.number_formats import Column, aligned

FEWEST, MOST = 2, 8  # hosts
# The kernel's token bucket takes the rate as 32 bits, in bytes per second (linux/pkt_sched.h,
# struct tc_ratespec).
MOST_RATE = float((1 << 32) - 1)
# at lower ones, the time of a burst exceeds 32 bits of the kernel's clock ticks
LEAST_RATE = 1250.0
SHORTEST_DELAY_S, LONGEST_DELAY_S = 1e-6, 10.0
LEAST_LOSS = 1e-9  # netem counts in shares of 2^-32
LEAST_MTU, MOST_MTU = 1280, 65535
NETWORK = "10.77.0.0/24"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What each host's interface does to the packets that it sends.

    The rate is also that at which a host receives from all others.
    """

    rate: Annotated[float | None, Meta(description="bytes per second; null: no limit")] = None
    burst: Annotated[
        int | None,
        Meta(
            description=(
                "bytes that are sent faster than the rate; null: those of 1.35 ms, at least 256 KiB"
            )
        ),
    ] = None
    delay: float = 0.0
    loss: Annotated[float, Meta(description="share of packets that are dropped")] = 0.0

    def validate(self) -> None:
        """UsageError for what the kernel cannot do."""
        if self.rate is not None and not LEAST_RATE <= self.rate <= MOST_RATE:
            raise UsageError(
                f"--rate: {self.rate * 8 / 1e9:g} Gbit/s is out of range",
                "give 10kbit to 34gbit, or leave --rate out for no limit",
            )
        if self.delay and not SHORTEST_DELAY_S <= self.delay <= LONGEST_DELAY_S:
            raise UsageError(
                f"--delay: {self.delay:g} s is out of range",
                "give 1us to 10s, or leave --delay out for none",
            )
        if self.loss and not LEAST_LOSS <= self.loss < 1:
            raise UsageError(
                f"--loss: {self.loss:g} is out of range",
                "give 0.0000001% to 99%, or leave --loss out for none",
            )


class LabSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A lab to make.

    `names` are the host names; `gpus` is how many of the machine's each host has, None for a share
    of one or one.
    """

    name: str = "lab"
    names: list[str]
    shape: Shape = Shape()
    mtu: int = 9000
    sshd: bool = True
    gpus: int | None = None
    share_cores: Annotated[bool, Meta(description="all hosts use all processors")] = False

    def validate(self) -> None:
        """UsageError for what cannot be made."""
        check_name(self.name)
        if not FEWEST <= len(self.names) <= MOST:
            raise UsageError(
                f"--hosts {len(self.names)}: a lab has {FEWEST} to {MOST} hosts", "give --hosts 2"
            )
        if not LEAST_MTU <= self.mtu <= MOST_MTU:
            raise UsageError(
                f"--mtu {self.mtu}: must be from {LEAST_MTU} to {MOST_MTU}", "give --mtu 9000"
            )
        self.shape.validate()


def check_name(name: str) -> None:
    """UsageError for what is not the name of a lab, which is also that of its folder."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name {name}: it is not the name of a lab", "use at most 32 of a to z, 0 to 9 and -"
        )


class LabHost(msgspec.Struct, frozen=True, kw_only=True):
    """An emulated host.

    `cores` and `gpus` are the machine's own numbers; no cores: it uses all of them.
    """

    name: str
    namespace: str
    address: str
    interface: str
    cores: list[int] = []
    gpus: list[int] = []
    gpu_percent: Annotated[
        int | None, Meta(description="share of its GPU's multiprocessors; null: all of them")
    ] = None


class Mark(msgspec.Struct, frozen=True):
    """A process, as pid and start time in clock ticks since boot: a pid alone is given to
    another process later.
    """

    pid: int
    start: int


class Lab(msgspec.Struct, frozen=True, kw_only=True):
    """A lab that is being made, or was made.

    `owner` is the process that removes it; None: it stays until `busbw lab down`.
    """

    schema: str = "busbw.lab/1"
    boot_id: str
    token: str
    folder: str
    spec: LabSpec
    hosts: list[LabHost]
    owner: Mark | None
    notes: list[str] = []
    mps: Annotated[
        str, Meta(description="where processes that share GPUs find CUDA's Multi-Process Service")
    ] = ""

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.spec.name

    @property
    def switch(self) -> str:
        """The namespace of the bridge between more than two hosts; '' for two, which are joined
        directly.
        """
        return f"bb{self.token}sw" if len(self.hosts) > 2 else ""

    @property
    def namespaces(self) -> list[str]:
        """All network namespaces of the lab."""
        return [host.namespace for host in self.hosts] + [self.switch] * bool(self.switch)

    @property
    def hosts_name(self) -> str:
        """Name of the file that is mounted at /etc/hosts.

        No other lab has it, so whoever has it mounted belongs to this one.
        """
        return f"hosts.{self.token}"

    @property
    def hosts_file(self) -> str:
        """Where that file is."""
        return f"{self.folder}/{self.hosts_name}"

    @property
    def shares_gpus(self) -> bool:
        """Whether several hosts use one GPU."""
        return any(host.gpu_percent is not None for host in self.hosts)

    def host(self, name: str) -> LabHost:
        """The host with this name; UsageError if there is none."""
        for host in self.hosts:
            if name in (host.name, host.address):
                return host
        raise UsageError(
            f"lab '{self.name}' has no host '{name}'",
            f"its hosts are {', '.join(host.name for host in self.hosts)}",
        )


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A host as it is now. `sshd`: whether it takes logins; None in a lab without sshd."""

    host: LabHost
    there: bool
    processes: int
    sshd: bool | None


class LabStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A lab as it is now. `leftover`: what made it has ended without removing it."""

    lab: Lab
    leftover: bool
    hosts: list[HostStatus]

    @property
    def fine(self) -> bool:
        """Whether everything that was made is there."""
        return not self.leftover and all(one.there and one.sshd is not False for one in self.hosts)


COLUMNS = (
    Column(title="host", value=lambda one: one.host.name, left=True),
    Column(title="address", value=lambda one: one.host.address, left=True),
    Column(title="interface", value=lambda one: one.host.interface, left=True),
    Column(title="cores", value=lambda one: ranges(one.host.cores) or "all", left=True),
    Column(title="GPUs", value=lambda one: _gpus(one), left=True),
    Column(title="processes", value=lambda one: one.processes),
    Column(title="state", value=lambda one: _state(one), left=True),
)


def made(lab: Lab) -> str:
    """What `busbw lab up` made, and the commands that use it."""
    name = "" if lab.name == "lab" else f" --name {lab.name}"
    names = [host.name for host in lab.hosts]
    way = (
        "by ssh"
        if lab.spec.sshd
        else "through the lab's launch agent, which Open MPI and busbw use"
    )
    places = ",".join(f"{name}:1" for name in names)
    return (
        f"{_head(lab)}\n"
        f"reach each other {way}: {', '.join(names)}\n\n"
        f"run    busbw lab exec{name} {names[0]} -- busbw run all_reduce --hosts {places}\n"
        f"end    busbw lab down{name}\n"
    )


def status(labs: Sequence[LabStatus]) -> str:
    """Every lab with its hosts."""
    return "\n".join(_lab(one) for one in labs) or "no lab\n"


def ranges(numbers: Sequence[int]) -> str:
    """`0-3,8`: numbers in ascending order."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _lab(one: LabStatus) -> str:
    left = (
        f"\nleft behind by a process that has ended: busbw lab down --name {one.lab.name}"
        if one.leftover
        else ""
    )
    return f"{_head(one.lab)}{left}\n{aligned(COLUMNS, one.hosts)}"


def _head(lab: Lab) -> str:
    return (
        f"{lab.name}: {counted(len(lab.hosts), 'host')}, {_shape(lab.spec.shape)}, MTU"
        f" {lab.spec.mtu}"
    )


def _shape(shape: Shape) -> str:
    parts = [bits_text(shape.rate) if shape.rate else "no rate limit"]
    if shape.delay:
        parts.append(
            f"{shape.delay * 1e6:.6g} us delay"
            if shape.delay < 1e-3
            else f"{shape.delay * 1e3:.6g} ms delay"
        )
    if shape.loss:
        parts.append(f"{shape.loss * 100:.6g} % loss")
    return ", ".join(parts)


def _gpus(one: HostStatus) -> str:
    numbers = ranges(one.host.gpus)
    return (
        f"{numbers} ({one.host.gpu_percent} %)"
        if one.host.gpu_percent is not None
        else numbers or "none"
    )


def _state(one: HostStatus) -> str:
    if not one.there:
        return "its network is gone"
    return "sshd has ended" if one.sshd is False else "ok"
