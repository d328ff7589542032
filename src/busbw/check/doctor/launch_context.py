"""What the stages of the launch doctor share: the hosts, their answers, the network that works."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from typing import TypedDict

from busbw.check.types import Stage
from busbw.core.finding import Verdict
from busbw.launch import remote
from busbw.launch.hosts import Host
from busbw.launch.remote import Done

NODE = "busbw.check.doctor.node"


class Identity(TypedDict):
    """Who a host says it is: its name, its addresses with prefix, MTUs by interface.

    `names` has the addresses that it takes the names of the hosts for.
    """

    hostname: str
    busbw: str
    addresses: dict[str, str]
    mtus: dict[str, int]
    names: dict[str, list[str]]


def identity(done: Done) -> Identity:
    """What a host answered; ValueError if it is no identity."""
    said = done.answer(Identity)
    for name, text in said["addresses"].items():
        IPv4Interface(text)
        said["mtus"].setdefault(name, 0)
    return said


@dataclass(slots=True)
class LaunchContext:
    """A launch under examination.

    `limit_s` is for each stage, `ifname` what the user gives as --ifname.
    """

    hosts: tuple[Host, ...]
    limit_s: float
    ifname: str = ""
    engine: str = "auto"
    identities: dict[str, Identity] = field(default_factory=dict)
    networks: list[IPv4Network] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The hosts as they were given."""
        return [host.name for host in self.hosts]

    def on_all(self, words: Sequence[str], given: bytes = b"") -> list[Done]:
        """Run a command on all hosts at the same time, with `given` on its stdin."""
        return self.on_each(words, dict.fromkeys(self.names, given))

    def on_each(self, words: Sequence[str], given: Mapping[str, bytes]) -> list[Done]:
        """Run a command on all hosts at the same time, with the host's `given` on its stdin."""
        return remote.run_each(dict.fromkeys(self.names, words), self.limit_s, given, together=True)

    def node(self, work: str) -> list[str]:
        """The command for a host's part of the work, which it reads from stdin."""
        return [sys.executable, "-m", NODE, work]

    def addresses(self, network: IPv4Network) -> dict[str, str]:
        """Each host's address in a network."""
        found = {}
        for host, said in self.identities.items():
            for interface in map(IPv4Interface, said["addresses"].values()):
                if interface.network == network:
                    found[host] = str(interface.ip)
        return found


def passed(name: str, message: str, *evidence: str) -> Stage:
    """A stage without a fault."""
    return Stage(name=name, verdict=Verdict.PASS, message=message, evidence=evidence)


def warned(name: str, message: str, *evidence: str, fix: str) -> Stage:
    """A stage with a fault that may not stop a launch."""
    return Stage(name=name, verdict=Verdict.WARN, message=message, evidence=evidence, fix=fix)


def failed(name: str, message: str, *evidence: str, fix: str) -> Stage:
    """A stage that stops a launch."""
    return Stage(name=name, verdict=Verdict.FAIL, message=message, evidence=evidence, fix=fix)


def skipped(name: str, message: str) -> Stage:
    """A stage that does not apply."""
    return Stage(name=name, verdict=Verdict.SKIP, message=message)
