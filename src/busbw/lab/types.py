"""Labs: hosts emulated on one machine. The specification of a lab, its state as it is kept on disk,
and both as text.

Times are in seconds, rates in bytes per second.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.errors import UsageError
from busbw.core.host_ranges import listed
from busbw.core.sizes import counted, short_size
from busbw.launch.hosts import LaunchHost, hosts_text
from busbw.link.types import bits_text
from busbw.ui.columns import Column, aligned

MIN_HOSTS, MAX_HOSTS = 2, 8  # hosts
# The kernel's token bucket takes the rate as 32 bits, in bytes per second (linux/pkt_sched.h,
# struct tc_ratespec).
MAX_RATE = float((1 << 32) - 1)
# At a lower rate, the time of a burst exceeds 32 bits of the kernel's clock ticks.
MIN_RATE = 1250.0
MIN_DELAY_S, MAX_DELAY_S = 1e-6, 10.0
MIN_LOSS = 1e-9  # netem counts in shares of 2^-32
MIN_MTU, MAX_MTU = 1280, 65535
NETWORK = "10.77.0.0/24"
# The largest size of the sweep that `up` proposes, and the time to send it once.
LEAST_BYTES, LARGEST_BYTES, SHORT_S = 4 << 10, 16 << 20, 0.2
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
        if self.rate is not None:
            check_rate(self.rate, "--rate")
        if self.delay and not MIN_DELAY_S <= self.delay <= MAX_DELAY_S:
            raise UsageError(
                f"--delay: {self.delay:g} s is out of range",
                "give 1us to 10s, or leave --delay out for none",
            )
        if self.loss and not MIN_LOSS <= self.loss < 1:
            raise UsageError(
                f"--loss: {self.loss:g} is out of range",
                "give 0.0000001% to 99%, or leave --loss out for none",
            )


class LabSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A lab to make."""

    name: str = "lab"
    names: Annotated[list[str], Meta(description="host names")]
    shape: Shape = Shape()
    sends: Annotated[
        dict[str, float],
        Meta(description="bytes per second that single hosts send, in place of the shape's rate"),
    ] = {}
    mtu: int = 9000
    sshd: bool = True
    gpus: Annotated[
        int | None,
        Meta(description="of the machine's GPUs on each host; null: one, or a share of one"),
    ] = None
    share_cores: Annotated[bool, Meta(description="all hosts use all processors")] = False

    def validate(self) -> None:
        """UsageError for what cannot be made."""
        check_name(self.name)
        if not MIN_HOSTS <= len(self.names) <= MAX_HOSTS:
            raise UsageError(
                f"--hosts {len(self.names)}: a lab has {MIN_HOSTS} to {MAX_HOSTS} hosts",
                "give --hosts 2",
            )
        if not MIN_MTU <= self.mtu <= MAX_MTU:
            raise UsageError(
                f"--mtu {self.mtu}: must be from {MIN_MTU} to {MAX_MTU}", "give --mtu 9000"
            )
        self.shape.validate()
        for name, rate in self.sends.items():
            if name not in self.names:
                raise UsageError(
                    f"--rate-of {name}: no such host", f"the hosts are {listed(self.names)}"
                )
            check_rate(rate, "--rate-of")

    def shape_of(self, name: str) -> Shape:
        """What a host's interface does to the packets that it sends."""
        return msgspec.structs.replace(self.shape, rate=self.sends.get(name, self.shape.rate))


def check_rate(rate: float, option: str) -> None:
    """UsageError for a rate that the kernel cannot keep."""
    if not MIN_RATE <= rate <= MAX_RATE:
        raise UsageError(
            f"{option}: {rate * 8 / 1e9:g} Gbit/s is out of range",
            f"give 10kbit/s to 34Gbit/s, or leave {option} out for no limit",
        )


def check_name(name: str) -> None:
    """UsageError for what is not the name of a lab, which is also that of its folder."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name {name}: it is not the name of a lab", "use at most 32 of a to z, 0 to 9 and -"
        )


class LabHost(msgspec.Struct, frozen=True, kw_only=True):
    """An emulated host."""

    name: str
    namespace: str
    address: str
    interface: str
    cores: list[int] = []  # the machine's numbers of them; empty: all
    gpus: list[int] = []  # the machine's numbers of them
    gpu_percent: Annotated[
        int | None, Meta(description="share of its GPU's multiprocessors; null: all of them")
    ] = None


class ProcessMark(msgspec.Struct, frozen=True):
    """A process, as pid and start time in clock ticks since boot: a later process may get the
    same pid.
    """

    pid: int
    start: int


class Lab(msgspec.Struct, frozen=True, kw_only=True):
    """A lab that is being made, or was made."""

    schema: str = "busbw.lab/1"
    boot_id: str
    token: str
    folder: str
    spec: LabSpec
    hosts: list[LabHost]
    owner: ProcessMark | None  # the process that removes it; None: it stays until `busbw lab down`
    notes: list[str] = []
    mps: Annotated[
        str, Meta(description="where processes that share GPUs find CUDA's Multi-Process Service")
    ] = ""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def switch(self) -> str:
        """The bridge's namespace for more than two hosts; '' for two, which are joined directly."""
        return f"bb{self.token}sw" if len(self.hosts) > 2 else ""

    @property
    def namespaces(self) -> list[str]:
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


class LabHostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A host as it is now. `sshd`: whether it takes logins; None in a lab without sshd."""

    host: LabHost
    there: bool
    processes: int
    sshd: bool | None


class LabStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A lab as it is now. `leftover`: what made it has ended without removing it."""

    lab: Lab
    leftover: bool
    hosts: list[LabHostStatus]

    @property
    def fine(self) -> bool:
        """Whether everything that was made is there."""
        return not self.leftover and all(
            host.there and host.sshd is not False for host in self.hosts
        )


COLUMNS = (
    Column(title="host", value=lambda status: status.host.name, left=True),
    Column(title="address", value=lambda status: status.host.address, left=True),
    Column(title="interface", value=lambda status: status.host.interface, left=True),
    Column(title="cores", value=lambda status: ranges(status.host.cores) or "all", left=True),
    Column(title="GPUs", value=lambda status: _gpus(status.host), left=True),
    Column(title="processes", value=lambda status: status.processes),
    Column(title="state", value=lambda status: _state(status), left=True),
)


def usage(lab: Lab) -> str:
    """What `busbw lab up` made, and the commands that use it."""
    option = "" if lab.name == "lab" else f" --name {lab.name}"
    names = [host.name for host in lab.hosts]
    means = "through the lab's launch agent, which Open MPI and busbw use"
    if lab.spec.sshd:
        means = "by ssh"
    places = shlex.quote(hosts_text([LaunchHost(name, 1) for name in names]))
    links = shlex.quote(hosts_text([LaunchHost(name) for name in names]))
    rates = [lab.spec.shape_of(name).rate for name in names]
    largest = short_size(_largest_bytes(min(filter(None, rates), default=None)))
    sweep = f"busbw run all_reduce --hosts {places} -b 1K -e {largest} -f 4"
    return (
        f"{_head(lab)}\n"
        f"reach each other {means}: {listed(names)}\n\n"
        f"run    busbw lab exec{option} {names[0]} -- {sweep}\n"
        f"link   busbw lab exec{option} {names[0]} -- busbw link --hosts {links}\n"
        f"end    busbw lab down{option}\n"
    )


def _largest_bytes(rate: float | None) -> int:
    """The largest size of a sweep that takes less than a minute on two cores."""
    size = LARGEST_BYTES
    while rate and size > LEAST_BYTES and size > rate * SHORT_S:
        size //= 4
    return size


def status(labs: Sequence[LabStatus]) -> str:
    return "\n".join(map(_lab, labs)) or "no lab\n"


def ranges(numbers: Sequence[int]) -> str:
    """`0-3,8`: numbers in ascending order."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _lab(status: LabStatus) -> str:
    text = _head(status.lab)
    if status.leftover:
        command = f"busbw lab down --name {status.lab.name}"
        text += f"\nleft behind by a process that has ended: {command}"
    return f"{text}\n{aligned(COLUMNS, status.hosts)}"


def _head(lab: Lab) -> str:
    hosts = counted(len(lab.hosts), "host")
    sends = "".join(f", {name} sends {bits_text(rate)}" for name, rate in lab.spec.sends.items())
    return f"{lab.name}: {hosts}, {_shape(lab.spec.shape)}{sends}, MTU {lab.spec.mtu}"


def _shape(shape: Shape) -> str:
    parts = [bits_text(shape.rate) if shape.rate else "no rate limit"]
    if 0 < shape.delay < 1e-3:
        parts.append(f"{shape.delay * 1e6:.6g} us delay")
    elif shape.delay:
        parts.append(f"{shape.delay * 1e3:.6g} ms delay")
    if shape.loss:
        parts.append(f"{shape.loss * 100:.6g} % loss")
    return ", ".join(parts)


def _gpus(host: LabHost) -> str:
    numbers = ranges(host.gpus)
    if host.gpu_percent is not None:
        return f"{numbers} ({host.gpu_percent} %)"
    return numbers or "none"


def _state(status: LabHostStatus) -> str:
    if not status.there:
        return "its network is gone"
    return "sshd has ended" if status.sshd is False else "ok"
