"""Two emulated hosts with a router each, and several equal links between the routers.

A hash decides which link a stream takes.

Host n has 10.79.n.1/24 or fd79:0:0:n::1/64. The routers have one next hop to the other host's
network for each link, and choose by addresses and ports, as switches do for equal-cost routes.
"""

import contextlib
import ipaddress
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import netlab
import streams
from rails import IPV4, Host

# net.ipv4.fib_multipath_hash_fields: both addresses; and the protocol and both ports
ADDRESSES, PORTS = 0x03, 0x37
LIMIT_S = 20


@dataclass(frozen=True)
class Paths:
    """The hosts, their routers, and the number of links between the routers."""

    hosts: list[Host]
    routers: list[str]
    count: int
    family: str

    def hash_by(self, fields: int) -> None:
        """Set what both routers hash: ADDRESSES or PORTS. Unavailable.

        Policy 1 would suffice on a cable. Over a veth pair each packet carries the sending socket's
        own random hash, which policy 1 uses in place of a hash of the ports; policy 3 reads the
        packet.
        """
        folder = "net/ipv4" if self.family == IPV4 else "net/ipv6"
        for router in self.routers:
            _set(router, f"{folder}/fib_multipath_hash_fields", fields)
            _set(router, f"{folder}/fib_multipath_hash_policy", 3)

    def limit(self, rate_mbit: float, queue_bytes: int = 0) -> None:
        """Limit each link in both directions.

        Its queue of 20 ms, or of the given bytes, drops the rest. Unavailable.
        """
        queue = ["limit", str(queue_bytes)] if queue_bytes else ["latency", "20ms"]
        shape = ["root", "tbf", "rate", f"{rate_mbit:g}mbit", "burst", "64kb", *queue]
        for router in self.routers:
            for link in range(self.count):
                words = ["tc", "-n", router, "qdisc", "replace", "dev", f"p{link}", *shape]
                done = subprocess.run(
                    words, capture_output=True, text=True, timeout=LIMIT_S, check=False
                )
                if done.returncode:
                    raise netlab.Unavailable(f"{' '.join(words)}: {done.stderr.strip()}")

    def carried(self) -> list[int]:
        """Bytes that each link has carried from host 1's side to host 2's."""
        words = [
            "ip",
            "netns",
            "exec",
            self.routers[0],
            "cat",
            *(f"/sys/class/net/p{n}/statistics/tx_bytes" for n in range(self.count)),
        ]
        return [
            int(word)
            for word in subprocess.run(
                words, capture_output=True, text=True, timeout=LIMIT_S, check=True
            ).stdout.split()
        ]

    @contextlib.contextmanager
    def watched(self) -> Iterator[dict[streams.Stream, int]]:
        """The link of each stream that host 1 opens within the context, by its first packet;
        filled at the end.
        """
        links: dict[streams.Stream, int] = {}
        with streams.first_packets(["ip", "netns", "exec", self.routers[0]], "p") as interfaces:
            yield links
        links.update((stream, int(name[1:])) for stream, name in interfaces.items())

    def of_kernel(self, connections: int, streams_each: int) -> list[list[streams.Stream]]:
        """Streams from host 1 to `connections` listeners on host 2, `streams_each` to one, whose
        source ports the kernel chose.
        """
        source, destination = self.hosts
        return streams.of_kernel(
            source.inside, destination.inside, destination.addresses[0], connections, streams_each
        )


@contextlib.contextmanager
def paths(count: int, family: str = IPV4, forget: bool = False) -> Iterator[Paths]:
    """Hosts, routers and `count` links with addresses of one family; all are removed at the end.

    Unavailable.

    With `forget`, ports of closed streams are free at once and not after a minute.
    """
    netlab.check_programs()
    token = uuid.uuid4().hex[:6]
    with contextlib.ExitStack() as undo:
        hosts = [Host(f"bb{token}h{n}", ["out"], [_address(family, n, 1)]) for n in (1, 2)]
        routers = [f"bb{token}r{n}" for n in (1, 2)]
        names = [*(host.namespace for host in hosts), *routers]
        undo.enter_context(netlab.namespaces(token, names))
        for name in names:
            # Otherwise the first packets wait until each link-local address is known to be the only
            # one.
            _set(name, "net/ipv6/conf/all/accept_dad", 0)
            _set(name, "net/ipv6/conf/default/accept_dad", 0)
        for number, (host, router) in enumerate(zip(hosts, routers, strict=True), 1):
            _join(
                (host.namespace, "out", _address(family, number, 1)),
                (router, "in", _address(family, number, 2)),
            )
            netlab.ip(
                "-n", host.namespace, "route", "add", "default", "via", _address(family, number, 2)
            )
            _set(
                router,
                "net/ipv4/ip_forward" if family == IPV4 else "net/ipv6/conf/all/forwarding",
                1,
            )
        for link in range(count):
            _join(
                *(
                    (router, f"p{link}", _address(family, 100 + link, end))
                    for end, router in enumerate(routers, 1)
                )
            )
        for own, router in enumerate(routers, 1):
            other = 3 - own
            hops = [
                word
                for link in range(count)
                for word in (
                    "nexthop",
                    "via",
                    _address(family, 100 + link, other),
                    "dev",
                    f"p{link}",
                )
            ]
            netlab.ip("-n", router, "route", "add", _network(family, other), *hops)
        if forget:
            for host in hosts:
                _set(host.namespace, "net/ipv4/tcp_max_tw_buckets", 0)
        routed = Paths(hosts, routers, count, family)
        routed.hash_by(PORTS)
        _wait(routed)
        yield routed


def _address(family: str, network: int, number: int) -> str:
    return (
        f"10.79.{network}.{number}"
        if family == IPV4
        else str(ipaddress.ip_address(f"fd79:0:0:{network:x}::{number:x}"))
    )


def _network(family: str, network: int) -> str:
    return f"10.79.{network}.0/24" if family == IPV4 else f"fd79:0:0:{network:x}::/64"


def _join(*ends: tuple[str, str, str]) -> None:
    """A link between two networks: namespace, interface and address of each end."""
    (a, name, _), (b, peer, _) = ends
    netlab.ip("link", "add", name, "netns", a, "type", "veth", "peer", peer, "netns", b)
    for namespace, interface, address in ends:
        netlab.ip("-n", namespace, "link", "set", interface, "mtu", "9000", "up")
        prefix = (
            [f"{address}/64", "dev", interface, "nodad"]
            if ":" in address
            else [f"{address}/24", "dev", interface]
        )
        netlab.ip("-n", namespace, "addr", "add", *prefix)


def _set(namespace: str, name: str, value: int) -> None:
    """A sysctl of a network. Unavailable."""
    words = [
        "ip",
        "netns",
        "exec",
        namespace,
        "sh",
        "-c",
        'echo "$1" > "/proc/sys/$0"',
        name,
        str(value),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise netlab.Unavailable(f"{name}: {done.stderr.strip()}")


def _wait(routed: Paths) -> None:
    """Wait until the hosts reach each other."""
    deadline = time.monotonic() + 5
    while True:
        try:
            routed.of_kernel(1, 4 * routed.count)
            return
        except subprocess.CalledProcessError as error:
            if time.monotonic() > deadline:
                raise netlab.Unavailable("no route over the emulated routers") from error
