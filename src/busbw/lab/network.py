"""The networks of a lab, made through netlink: namespaces, veth pairs, a bridge, and what each
interface does to packets.

pyroute2 needs neither `ip` nor `tc`, which many images lack.
"""

import contextlib
import errno
import os
import signal
import subprocess
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from busbw.core.errors import NoMeasurement
from busbw.lab.processes import NAMESPACES, enter_network, inside, kill_all
from busbw.lab.types import Lab, LabHost, Shape

MIN_BURST = 256 << 10
BURST_S = 1.35e-3
QUEUE = "20ms"  # of data at the rate; what does not fit is dropped
# netem drops packets beyond its limit, so the limit must hold all that are on their way; sockets
# bound their number.
DELAYED_PACKETS = 1_000_000
PREFIX = 24


def check() -> None:
    """NoMeasurement if pyroute2 is not installed."""
    try:
        import pyroute2  # noqa: F401
    except ImportError as error:
        raise NoMeasurement(
            "a lab needs pyroute2, which is not installed", "pip install 'busbw[lab]'"
        ) from error


def make(lab: Lab) -> None:
    """Make the hosts' networks, join them, and set addresses.

    NoMeasurement if the kernel refuses.
    """
    for name in lab.namespaces:
        _create(name)
    _join(lab)
    for host in lab.hosts:
        with _inside(host.namespace) as netlink:
            index = _index(netlink, host.interface)
            netlink.link("set", index=_index(netlink, "lo"), state="up")
            netlink.addr("add", index=index, address=host.address, prefixlen=PREFIX)
            # Packets are lost one by one only if they are not parts of a larger one that is cut up
            # later.
            segments = {"gso_max_segs": 1} if lab.spec.shape.loss else {}
            netlink.link("set", index=index, mtu=lab.spec.mtu, state="up", **segments)
        limit(host, lab.spec.shape_of(host.name))
    if any(lab.spec.shape_of(host.name) != Shape() for host in lab.hosts):
        usable = sorted(os.sched_getaffinity(0))
        kept = [_keep_order(host.namespace, host.cores or usable) for host in lab.hosts]
        if lab.switch:
            kept.append(_keep_order(lab.switch, usable))
        if not all(kept):
            lab.notes.append(
                "packets of a connection may arrive out of order: receive packet steering"
                " (rps_cpus) cannot be set here"
            )


def _keep_order(namespace: str, cores: Sequence[int]) -> bool:
    """Let one of these cores receive all packets of a connection; False if that is not possible.

    The queue of a limited interface is emptied by whichever core is there, and a veth pair leaves a
    packet to that core. Packets then overtake each other, and TCP sends again what is not lost and
    slows down (benchmarks/slow_training_2xh200_202611).
    """
    files = "/sys/class/net/*/queues/rx-*/rps_cpus"
    commands = [
        "mount -n -t sysfs sysfs /sys",
        f"for file in {files}; do echo {cpu_mask(cores)} > $file; done",
    ]
    done = subprocess.run(
        [*enter_network(namespace), "sh", "-c", " && ".join(commands)],
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


def cpu_mask(cpus: Iterable[int]) -> str:
    """A set of CPUs as the kernel reads it: groups of 32 bits in hexadecimal, the highest first."""
    bits = sum(1 << cpu for cpu in cpus)
    groups: list[str] = []
    while bits or not groups:
        groups.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(groups))


def limit(host: LabHost, shape: Shape) -> None:
    """Set what the host's interface does to the packets that it sends; it must not do anything yet.

    NoMeasurement if the kernel refuses.
    """
    if shape == Shape():
        return
    with _inside(host.namespace) as netlink:
        queue(netlink, _index(netlink, host.interface), shape)


def queue(netlink: Any, index: int, shape: Shape) -> None:
    """Add the queueing disciplines of a shape to an interface.

    NoMeasurement if the kernel lacks one.
    """
    parent = {}
    if shape.delay or shape.loss:
        delay_us, percent = round(shape.delay * 1e6), shape.loss * 100
        with _needs("sch_netem", "--delay and --loss", "leave them out"):
            netlink.tc(
                "add",
                "netem",
                index,
                handle="1:0",
                delay=delay_us,
                loss=percent,
                limit=DELAYED_PACKETS,
            )
        parent = {"parent": "1:1"}
    _limit_rate(netlink, index, shape, **parent)


def _limit_rate(netlink: Any, index: int, shape: Shape, **parent: str) -> None:
    if shape.rate is None:
        return
    burst = shape.burst or max(MIN_BURST, round(shape.rate * BURST_S))
    with _needs("sch_tbf", "rate limits", "leave out --rate"):
        netlink.tc(
            "add",
            "tbf",
            index,
            handle="10:0",
            rate=int(shape.rate),
            burst=burst,
            latency=QUEUE,
            **parent,
        )


def remove(name: str) -> None:
    """Kill the processes in a namespace and remove it with its interfaces, if it exists."""
    if not (NAMESPACES / name).exists():
        return
    from pyroute2 import netns

    kill_all(partial(inside, name))
    with _errors(f"network namespace {name}"), contextlib.suppress(FileNotFoundError):
        netns.remove(name)


def _create(name: str) -> None:
    from pyroute2 import netns

    with _errors(f"network namespace {name}"):
        netns.create(name)


def _join(lab: Lab) -> None:
    from pyroute2 import IPRoute

    with _errors("veth"), IPRoute() as netlink:
        if not lab.switch:
            first, second = lab.hosts
            _veth(netlink, (first.interface, first.namespace), (second.interface, second.namespace))
            return
        for number, host in enumerate(lab.hosts):
            _veth(netlink, (host.interface, host.namespace), (f"p{number}", lab.switch))
    with _inside(lab.switch) as netlink:
        with _needs("bridge", "three hosts or more", "use two hosts"):
            netlink.link("add", ifname="br0", kind="bridge")
        bridge = _index(netlink, "br0")
        for number in range(len(lab.hosts)):
            port = _index(netlink, f"p{number}")
            netlink.link("set", index=port, mtu=lab.spec.mtu, master=bridge, state="up")
            # The bridge limits what a host receives from all others together.
            _limit_rate(netlink, port, lab.spec.shape)
        netlink.link("set", index=bridge, mtu=lab.spec.mtu, state="up")


def _veth(netlink: Any, first: tuple[str, str], second: tuple[str, str]) -> None:
    """Make a pair of joined interfaces, each a name and a namespace."""
    netlink.link(
        "add",
        ifname=first[0],
        net_ns_fd=first[1],
        kind="veth",
        peer={"ifname": second[0], "net_ns_fd": second[1]},
    )


def _index(netlink: Any, name: str) -> int:
    # Not link_lookup: it lists all interfaces, and a list that changes meanwhile may lack some.
    return int(netlink.link("get", ifname=name)[0]["index"])


@contextlib.contextmanager
def _inside(namespace: str) -> Iterator[Any]:
    from pyroute2 import NetNS

    with _errors(f"network namespace {namespace}"), NetNS(namespace, flags=0) as netlink:
        yield netlink


@contextlib.contextmanager
def _needs(module: str, feature: str, instead: str) -> Iterator[None]:
    """NoMeasurement if the kernel lacks a queue discipline (ENOENT) or interface (EOPNOTSUPP)."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NetlinkError as error:
        if error.code not in (errno.ENOENT, errno.EOPNOTSUPP):
            raise
        hint = (
            f"modprobe {module}, {instead}, or run under a kernel that has it: tools/uml.sh in a"
            " checkout of busbw"
        )
        raise NoMeasurement(f"this kernel has no {module}, which {feature} need", hint) from error


@contextlib.contextmanager
def _errors(subject: str) -> Iterator[None]:
    """The kernel's refusals as NoMeasurement.

    Signals wait. Python would lose Ctrl-C in the handlers that run when pyroute2 forks, and
    pyroute2 ends its forks by SIGTERM: a handler of this program that raises would run the ends of
    its `with` blocks there, and so remove the lab.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    )
    with warnings.catch_warnings():
        # Python warns of pyroute2's forks in a process with threads; the child only enters a
        # namespace and opens a socket.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            yield
        except (NetlinkError, OSError) as error:
            reason = error.args[1] if len(error.args) > 1 else error
            raise NoMeasurement(
                f"{subject}: {reason}",
                "run it as root on Linux, outside of containers that forbid it (CAP_SYS_ADMIN)",
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
