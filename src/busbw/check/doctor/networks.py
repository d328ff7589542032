"""The stages of the launch doctor on networks, and what all of its stages share.

`subnets` finds the subnets that all hosts are in, `tcp` connects on each of them in both
directions. A LaunchContext holds the hosts, their answers, and the networks that work.
"""

import json
import random
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from typing import NotRequired, TypedDict

from busbw.check.doctor.node import LARGE_PACKETS_LOST
from busbw.check.shell_words import filled
from busbw.check.types import Stage
from busbw.core import program
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.core.host_ranges import listed
from busbw.core.sizes import counted
from busbw.launch import remote
from busbw.launch.hosts import LaunchHost
from busbw.launch.interfaces import is_cidr, resolve
from busbw.launch.remote import CommandResult

NODE = "busbw.check.doctor.node"
PORT_RANGE = (20000, 30000)  # below the kernel's ephemeral range, above common services
CONNECT_SHARE = 0.6  # of a stage's limit, for connecting
LINGER_S = 2.0  # for hosts that start later
_MAX_NAMED_PAIRS = 6
SHOW_PATH_MTU = (
    "ping -M do -s 8972 ADDRESS shows whether an MTU of 9000 passes; raise the MTU on the path, or"
    " lower it on the hosts"
)
SET_MTU = (
    "drain {host}, and there: ip link set dev {name} mtu {mtu}; its switch port needs at least that"
)


class Identity(TypedDict):
    """Who a host says it is: its name, its version of busbw, its addresses and MTUs by interface.

    Addresses have their prefix. `names` has the addresses to which it resolves the hosts' names.
    """

    hostname: str
    busbw: str
    addresses: dict[str, str]
    mtus: dict[str, int]
    names: dict[str, list[str]]
    gpus: NotRequired[int]


def parse_identity(done: CommandResult) -> Identity:
    """What a host answered; ValueError if it is no identity."""
    identity = done.answer(Identity)
    for name, text in identity["addresses"].items():
        IPv4Interface(text)
        identity["mtus"].setdefault(name, 0)
    return identity


@dataclass(slots=True)
class LaunchContext:
    """A launch under examination.

    `limit_s` is the time for each stage, `ifname` what the user gives as --ifname. Stages fill in
    `identities` by host, and `networks`, the subnets that work.
    """

    hosts: tuple[LaunchHost, ...]
    limit_s: float
    ifname: str = ""
    engine: str = "auto"
    identities: dict[str, Identity] = field(default_factory=dict)
    networks: list[IPv4Network] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.hosts]

    @property
    def without_gpus(self) -> list[str]:
        """The hosts that have no NVIDIA GPU."""
        return [host for host, seen in self.identities.items() if not seen.get("gpus", 0)]

    @property
    def on_cpus(self) -> bool:
        """Whether the ranks run on CPUs: as the user asked, or as no host has a GPU."""
        nowhere = len(self.without_gpus) == len(self.identities)
        return self.engine == "mpi" or (self.engine == "auto" and nowhere)

    def on_all(self, words: Sequence[str], stdin: bytes = b"") -> list[CommandResult]:
        """Run a command on all hosts at the same time, with the same `stdin`."""
        return self.on_each(words, dict.fromkeys(self.names, stdin))

    def on_each(self, words: Sequence[str], stdin: Mapping[str, bytes]) -> list[CommandResult]:
        """Run a command on all hosts at the same time, with the `stdin` of each host."""
        return remote.run_each(dict.fromkeys(self.names, words), self.limit_s, stdin, together=True)

    def node(self, work: str) -> list[str]:
        """The command for a host's part of the work, which it reads from stdin."""
        return program.module_command(NODE, work)

    def addresses(self, network: IPv4Network) -> dict[str, str]:
        """Each host's address in a network."""
        by_host = {}
        for host, identity in self.identities.items():
            for interface in map(IPv4Interface, identity["addresses"].values()):
                if interface.network == network:
                    by_host[host] = str(interface.ip)
        return by_host


def passed(name: str, message: str, *evidence: str) -> Stage:
    return Stage(name=name, verdict=Verdict.PASS, message=message, evidence=evidence)


def warned(name: str, message: str, *evidence: str, fix: str) -> Stage:
    """A stage with a fault that may not stop a launch."""
    return Stage(name=name, verdict=Verdict.WARN, message=message, evidence=evidence, fix=fix)


def failed(name: str, message: str, *evidence: str, fix: str) -> Stage:
    """A stage that stops a launch."""
    return Stage(name=name, verdict=Verdict.FAIL, message=message, evidence=evidence, fix=fix)


def skipped(name: str, message: str) -> Stage:
    """A stage that does not apply to this launch."""
    return Stage(name=name, verdict=Verdict.SKIP, message=message)


def subnets(context: LaunchContext) -> Stage:
    """The subnets that can carry the job: all hosts are in them, and --ifname has them if given."""
    hosts = context.identities
    number: Counter[IPv4Network] = Counter()
    evidence = []
    for host, identity in hosts.items():
        interfaces = _chosen_interfaces(context, host).values()
        number.update({interface.network for interface in interfaces})
        named = ", ".join(f"{name} {text}" for name, text in identity["addresses"].items())
        evidence.append(f"{host}: {named}")
    common = [network for network, count in number.items() if count == len(hosts)]
    traps = [network for network in common if _has_equal_addresses(context, network)]
    context.networks = [network for network in common if network not in traps]
    without = []
    if context.ifname and not is_cidr(context.ifname):
        without = [host for host in hosts if not _chosen_interfaces(context, host)]
    if without:
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
            f"{_list_networks(traps)}: several hosts have the same address there, as with docker0"
            " and virbr0"
        )
        fix = f"name the subnet to use: --ifname {context.networks[0]}"
        return warned("subnets", message, *evidence, fix=fix)
    shared = f"the hosts share {_list_networks(context.networks)}"
    return _judge_mtus(context) or passed("subnets", shared)


def _has_equal_addresses(context: LaunchContext, network: IPv4Network) -> bool:
    """Whether several hosts have the same address in a network."""
    return len(set(context.addresses(network).values())) < len(context.identities)


def _chosen_interfaces(context: LaunchContext, host: str) -> dict[str, IPv4Interface]:
    """A host's interfaces with their addresses, or those that --ifname selects."""
    texts = context.identities[host]["addresses"]
    addresses = {name: IPv4Interface(text) for name, text in texts.items()}
    if not context.ifname:
        return addresses
    try:
        return {name: addresses[name] for name in resolve(context.ifname, addresses)}
    except UsageError:  # it selects none
        return {}


def _judge_mtus(context: LaunchContext) -> Stage | None:
    """The warning if the interfaces of a subnet have different MTUs."""
    for network in context.networks:
        by_host = {}  # the name and the MTU of the interface
        for host, identity in context.identities.items():
            for name, text in identity["addresses"].items():
                if IPv4Interface(text).network == network:
                    by_host[host] = name, identity["mtus"][name]
        number = Counter(mtu for _, mtu in by_host.values())
        usual = max(number, key=lambda mtu: (number[mtu], mtu))
        odd = {host: (name, mtu) for host, (name, mtu) in by_host.items() if mtu != usual}
        if odd:
            majority = f"{number[usual]} of {len(by_host)} hosts have {usual}"
            evidence = [
                f"{host}: {name} has MTU {mtu}, {majority}" for host, (name, mtu) in odd.items()
            ]
            host, (name, _) = next(iter(odd.items()))
            message = f"MTUs differ on {network}: {listed(odd)} differs from the others"
            fix = filled(SET_MTU, host=host, name=name, mtu=usual)
            return warned("subnets", message, *evidence, fix=fix)
    return None


def tcp(context: LaunchContext) -> Stage:
    """Every host connects to every other on every common subnet, to an unused port."""
    bad: dict[IPv4Network, dict[str, str]] = {}
    for done in context.on_each(context.node("connect"), _connect_requests(context)):
        try:
            for label, reason in done.answer(dict[str, dict[str, str]])["failed"].items():
                network, _, other = label.partition(" ")
                bad.setdefault(IPv4Network(network), {})[f"{done.host} to {other}"] = reason
        except (ValueError, KeyError):
            message = f"{done.host}: {done.problem or 'no answer'}"
            fix = filled("ssh {host} true", host=done.host)
            return failed("tcp", message, done.error.strip()[-300:], fix=fix)
    working = [network for network in context.networks if network not in bad]
    evidence: list[str] = []
    for subnet, pairs in bad.items():
        evidence += [f"{pair} on {subnet}: {reason}" for pair, reason in pairs.items()]
    evidence = evidence[:_MAX_NAMED_PAIRS]
    if not working:
        first = next(iter(bad))
        if all(reason == LARGE_PACKETS_LOST for reason in bad[first].values()):
            message = f"large packets are lost on {_list_networks(bad)}"
            return failed("tcp", message, *evidence, fix=SHOW_PATH_MTU)
        fix = (
            f"allow {first} in the firewall of the hosts, in both directions (firewall-cmd"
            f" --zone=trusted --add-source={first})"
        )
        message = f"hosts cannot connect to each other on {_list_networks(bad)}"
        return failed("tcp", message, *evidence, fix=fix)
    context.networks = working
    if bad:
        message = f"hosts connect on {_list_networks(working)}, but not on {_list_networks(bad)}"
        fix = f"name the subnet that works: --ifname {working[0]}"
        return warned("tcp", message, *evidence, fix=fix)
    hosts = counted(len(context.hosts), "host")
    return passed("tcp", f"{hosts} connect in both directions on {_list_networks(working)}")


def _connect_requests(context: LaunchContext) -> dict[str, bytes]:
    """What each host gets on stdin, where other users cannot see the token."""
    port, token = random.SystemRandom().randint(*PORT_RANGE), secrets.token_hex(16)
    by_network = {network: context.addresses(network) for network in context.networks}
    requests = {}
    for host in context.names:
        listen, peers = [], {}
        for network, addresses in by_network.items():
            listen.append([addresses[host], port])
            for other, address in addresses.items():
                if other != host:
                    peers[f"{network} {other}"] = [address, port]
        work = {
            "own": listen,
            "peers": peers,
            "token": token,
            "seconds": CONNECT_SHARE * context.limit_s,
            "linger": LINGER_S,
        }
        requests[host] = json.dumps(work).encode()
    return requests


def _list_networks(networks: Iterable[IPv4Network]) -> str:
    return ", ".join(map(str, networks))
