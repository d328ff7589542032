"""Stages: subnets that all hosts are in, and TCP connections in both directions on each of them.

What the stages of the launch doctor share: the hosts, their answers, the network that works.
"""

import json
import random
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from typing import TypedDict

from busbw.check.doctor.node import LARGE
from busbw.check.shell_words import filled
from busbw.check.types import Stage
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.core.sizes import counted
from busbw.launch import remote
from busbw.launch.hosts import Host
from busbw.launch.interfaces import is_cidr, resolve
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


PORTS = (20000, 30000)  # below the kernel's ephemeral range, above common services
SHARE = 0.6  # of a stage's limit, for connecting
LINGER_S = 2.0  # for hosts that start later
_MOST_PAIRS = 6
LARGER_THAN = (
    "ping -M do -s 8972 ADDRESS shows whether an MTU of 9000 passes; raise the MTU on the path, or"
    " lower it on the hosts"
)


def subnets(context: LaunchContext) -> Stage:
    """The subnets that can carry the job: all hosts are in them, and --ifname has them if given."""
    hosts = context.identities
    seen: Counter[IPv4Network] = Counter()
    for host in hosts:
        seen.update({interface.network for interface in _chosen(context, host).values()})
    common = [network for network, number in seen.items() if number == len(hosts)]
    traps = [
        network for network in common if len(set(context.addresses(network).values())) < len(hosts)
    ]
    context.networks = [network for network in common if network not in traps]
    evidence = []
    for host, said in hosts.items():
        named = ", ".join(f"{name} {text}" for name, text in said["addresses"].items())
        evidence.append(f"{host}: {named}")
    if without := [
        host
        for host in hosts
        if context.ifname and not is_cidr(context.ifname) and not _chosen(context, host)
    ]:
        fix = "name the subnet instead, since interface names differ between hosts: --ifname CIDR"
        return failed(
            "subnets",
            f"--ifname {context.ifname}: no such interface with an address on {', '.join(without)}",
            *evidence,
            fix=fix,
        )
    if not context.networks:
        fix = (
            "give the hosts addresses in one subnet, or a route between theirs and --ifname with"
            " the interface of each"
        )
        within = f" within {context.ifname}" if context.ifname else ""
        return failed("subnets", f"the hosts have no subnet in common{within}", *evidence, fix=fix)
    if traps:
        message = (
            f"{_list(traps)}: several hosts have the same address there, as with docker0 and virbr0"
        )
        return warned(
            "subnets",
            message,
            *evidence,
            fix=f"name the subnet to use: --ifname {context.networks[0]}",
        )
    return _mtus(context) or passed("subnets", f"the hosts share {_list(context.networks)}")


def _chosen(context: LaunchContext, host: str) -> dict[str, IPv4Interface]:
    """A host's interfaces with their addresses, or those that --ifname selects."""
    have = {
        name: IPv4Interface(text) for name, text in context.identities[host]["addresses"].items()
    }
    try:
        return (
            {name: have[name] for name in resolve(context.ifname, have)} if context.ifname else have
        )
    except UsageError:  # it selects none
        return {}


def _mtus(context: LaunchContext) -> Stage | None:
    """The warning that the interfaces of a subnet have different MTUs, if they have."""
    for network in context.networks:
        of_host = {
            host: (name, said["mtus"][name])
            for host, said in context.identities.items()
            for name, text in said["addresses"].items()
            if IPv4Interface(text).network == network
        }
        number = Counter(mtu for _, mtu in of_host.values())
        usual = max(number, key=lambda mtu: (number[mtu], mtu))
        if odd := {host: one for host, one in of_host.items() if one[1] != usual}:
            texts = [
                f"{host}: {name} has MTU {mtu}, {number[usual]} of {len(of_host)} hosts have"
                f" {usual}"
                for host, (name, mtu) in odd.items()
            ]
            host, (name, _) = next(iter(odd.items()))
            fix = filled(
                "drain {host}, and there: ip link set dev {name} mtu {mtu}; its switch port needs"
                " at least that",
                host=host,
                name=name,
                mtu=usual,
            )
            return warned(
                "subnets",
                f"MTUs differ on {network}: {', '.join(odd)} differs from the others",
                *texts,
                fix=fix,
            )
    return None


def tcp(context: LaunchContext) -> Stage:
    """Every host connects to every other on every common subnet, to an unused port."""
    bad: dict[IPv4Network, dict[str, str]] = {}
    for done in context.on_each(context.node("connect"), _spoken(context)):
        try:
            for label, reason in done.answer(dict[str, dict[str, str]])["failed"].items():
                network, _, other = label.partition(" ")
                bad.setdefault(IPv4Network(network), {})[f"{done.host} to {other}"] = reason
        except (ValueError, KeyError):
            return failed(
                "tcp",
                f"{done.host}: {done.problem or 'no answer'}",
                done.error.strip()[-300:],
                fix=filled("ssh {host} true", host=done.host),
            )
    working = [network for network in context.networks if network not in bad]
    evidence = [
        f"{pair} on {network}: {reason}"
        for network, pairs in bad.items()
        for pair, reason in pairs.items()
    ][:_MOST_PAIRS]
    if not working:
        first = next(iter(bad))
        if all(reason == LARGE for reason in bad[first].values()):
            return failed(
                "tcp", f"large packets are lost on {_list(bad)}", *evidence, fix=LARGER_THAN
            )
        fix = (
            f"allow {first} in the firewall of the hosts, in both directions (firewall-cmd"
            f" --zone=trusted --add-source={first})"
        )
        return failed(
            "tcp", f"hosts cannot connect to each other on {_list(bad)}", *evidence, fix=fix
        )
    context.networks = working
    if bad:
        message = f"hosts connect on {_list(working)}, but not on {_list(bad)}"
        return warned(
            "tcp", message, *evidence, fix=f"name the subnet that works: --ifname {working[0]}"
        )
    return passed(
        "tcp",
        f"{counted(len(context.hosts), 'host')} connect in both directions on {_list(working)}",
    )


def _spoken(context: LaunchContext) -> dict[str, bytes]:
    """What each host gets on stdin, where other users cannot see the token."""
    port, token = random.SystemRandom().randint(*PORTS), secrets.token_hex(16)
    by_network = {network: context.addresses(network) for network in context.networks}
    asked = {}
    for host in context.names:
        peers = {
            f"{network} {other}": [address, port]
            for network, those in by_network.items()
            for other, address in those.items()
            if other != host
        }
        own = [[those[host], port] for those in by_network.values()]
        work = {
            "own": own,
            "peers": peers,
            "token": token,
            "seconds": SHARE * context.limit_s,
            "linger": LINGER_S,
        }
        asked[host] = json.dumps(work).encode()
    return asked


def _list(networks: Iterable[IPv4Network]) -> str:
    return ", ".join(map(str, networks))
