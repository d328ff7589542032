"""Two emulated hosts joined by several rails: on each rail a NIC at both ends and a switch between
them, each of which can be made to fail.

Rail r has the networks 10.78.r.0/24 and fd78:0:0:r::/64; host 1 and 2 have the last number 1 and 2.
"""

import contextlib
import ipaddress
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import netlab

IPV4, IPV6 = "IPv4", "IPv6"


@dataclass(frozen=True)
class Host:
    """One emulated host with an interface and an address on each rail."""

    namespace: str
    interfaces: list[str]
    addresses: list[str]

    @property
    def inside(self) -> list[str]:
        """The command prefix that runs a command there, with a /sys of its own interfaces."""
        return ["ip", "netns", "exec", self.namespace]


@dataclass(frozen=True)
class Rails:
    """The two hosts and the switches."""

    hosts: list[Host]
    switch: str
    family: str

    def cut(self, rail: int, at: tuple[int, ...] = (0, 1)) -> None:
        """Unplug a rail: the hosts' interfaces lose their carrier."""
        for host in at:
            netlab.ip("-n", self.switch, "link", "set", _port(rail, host), "down")

    def mend(self, rail: int) -> None:
        """Plug the rail in again."""
        for host in (0, 1):
            netlab.ip("-n", self.switch, "link", "set", _port(rail, host), "up")

    def down(self, rail: int, host: int) -> None:
        """Set an interface down on its host, which removes its routes."""
        netlab.ip(
            "-n",
            self.hosts[host].namespace,
            "link",
            "set",
            self.hosts[host].interfaces[rail],
            "down",
        )

    def up(self, rail: int, host: int) -> None:
        """Set it up again, and add its IPv6 addresses as a network configuration would."""
        restored = self.hosts[host]
        netlab.ip("-n", restored.namespace, "link", "set", restored.interfaces[rail], "up")
        if self.family == IPV6:
            _address(restored, rail, "replace")

    def blackhole(self, rail: int) -> None:
        """Drop all packets without notice: carriers stay."""
        netlab.ip("-n", self.switch, "link", "set", f"br{rail}", "down")

    def pass_again(self, rail: int) -> None:
        """Stop dropping packets."""
        netlab.ip("-n", self.switch, "link", "set", f"br{rail}", "up")

    def limit(self, rate_mbit: float, burst_kb: int = 64) -> None:
        """Limit what each host sends on each rail, in bursts of at most `burst_kb`. Unavailable."""
        shape = ["tbf", "rate", f"{rate_mbit:g}mbit", "burst", f"{burst_kb}kb", "latency", "20ms"]
        for host in self.hosts:
            for interface in host.interfaces:
                words = [
                    "tc",
                    "-n",
                    host.namespace,
                    "qdisc",
                    "replace",
                    "dev",
                    interface,
                    "root",
                    *shape,
                ]
                done = subprocess.run(
                    words, capture_output=True, text=True, timeout=20, check=False
                )
                if done.returncode:
                    raise netlab.Unavailable(f"{' '.join(words)}: {done.stderr.strip()}")

    def sent(self, host: int) -> list[int]:
        """Bytes that a host's interfaces have sent, one number for each rail."""
        sender = self.hosts[host]
        words = [
            *sender.inside,
            "cat",
            *(f"/sys/class/net/{name}/statistics/tx_bytes" for name in sender.interfaces),
        ]
        return [
            int(word)
            for word in subprocess.run(
                words, capture_output=True, text=True, timeout=20, check=True
            ).stdout.split()
        ]


@contextlib.contextmanager
def rails(count: int = 1, family: str = IPV4) -> Iterator[Rails]:
    """Two hosts with `count` rails and addresses of one family; all are removed at the end.

    Unavailable.
    """
    netlab.check_programs()
    token = uuid.uuid4().hex[:6]
    with contextlib.ExitStack() as undo:
        switch = f"bb{token}sw"
        hosts = [_host(token, number, count, family) for number in (1, 2)]
        undo.enter_context(netlab.namespaces(token, [switch, *(host.namespace for host in hosts)]))
        for rail in range(count):
            netlab.ip("-n", switch, "link", "add", f"br{rail}", "type", "bridge")
            netlab.ip("-n", switch, "link", "set", f"br{rail}", "mtu", "9000", "up")
            for number, host in enumerate(hosts):
                _plug(host, rail, switch, _port(rail, number))
        wired = Rails(hosts, switch, family)
        _wait(wired)
        yield wired


def _port(rail: int, host: int) -> str:
    return f"r{rail}h{host}"


def _host(token: str, number: int, count: int, family: str) -> Host:
    texts = [
        f"10.78.{rail}.{number}" if family == IPV4 else f"fd78:0:0:{rail:x}::{number:x}"
        for rail in range(count)
    ]
    addresses = [str(ipaddress.ip_address(text)) for text in texts]  # in canonical form
    return Host(
        f"bb{token}h{number}", [f"n{token}{number}{rail}" for rail in range(count)], addresses
    )


def _plug(host: Host, rail: int, switch: str, port: str) -> None:
    name = host.interfaces[rail]
    netlab.ip(
        "link", "add", name, "netns", host.namespace, "type", "veth", "peer", port, "netns", switch
    )
    netlab.ip("-n", switch, "link", "set", port, "mtu", "9000", "master", f"br{rail}", "up")
    netlab.ip("-n", host.namespace, "link", "set", name, "mtu", "9000", "up")
    _address(host, rail, "add")


def _address(host: Host, rail: int, verb: str) -> None:
    address = host.addresses[rail]
    words = (
        [f"{address}/64", "dev", host.interfaces[rail], "nodad"]
        if ":" in address
        else [f"{address}/24", "dev", host.interfaces[rail]]
    )
    netlab.ip("-n", host.namespace, "addr", verb, *words)


def _wait(wired: Rails) -> None:
    """Wait until a host reaches the other on every rail: new bridges need a moment."""
    deadline = time.monotonic() + 5
    probe = (
        "import socket,sys\n"
        "try: socket.create_connection((sys.argv[1], 9), 0.5)\n"
        "except ConnectionRefusedError: pass"
    )
    for address in wired.hosts[1].addresses:
        words: list[Any] = [*wired.hosts[0].inside, "python3", "-c", probe, address]
        while subprocess.run(words, capture_output=True, timeout=20, check=False).returncode:
            if time.monotonic() > deadline:
                raise netlab.Unavailable(f"no route to {address} over the emulated switch")
