"""Which network interfaces carry the job: `--ifname` as NCCL_SOCKET_IFNAME has it (`eth`, `=eth0`, `^docker`), or a network as CIDR.

Each library wants it in other words: MPI and its runtime take exact names or a CIDR, NCCL takes prefixes but no CIDR, Gloo one exact
name. A CIDR is the only form that holds on hosts whose interfaces are named differently, so every rank resolves it on its own host.
"""

import ipaddress
import os
import socket
from collections.abc import Mapping

from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.host.addresses import local as local
from busbw.host.interfaces import MBIT, Interface, read_interfaces
from busbw.host.source import Live, Source

VARIABLE = "BUSBW_IFNAME"  # carries --ifname to every rank
MUCH_SLOWER = 4  # as the plugin has it: beside fast interfaces a management network takes no part


Local = Mapping[str, ipaddress.IPv4Interface | None]


def resolve(text: str, have: Local) -> tuple[str, ...]:
    """The names among `have` that `text` selects; UsageError, naming those that exist, where it selects none."""
    network = _network(text)
    if network is not None:
        names = tuple(name for name, address in have.items() if address and address.ip in network)
    else:
        names = _matching(text, have)
    if not names:
        there = ", ".join(f"{name} ({address})" if address else name for name, address in have.items())
        raise UsageError(f"--ifname {text}: no such interface on {socket.gethostname()}", f"it has {there}")
    return names


def selected(text: str) -> tuple[str, ...]:
    """What `text` selects on this host, nothing where that is none: a host that only launches need have no part in the network."""
    try:
        return resolve(text, local()) if text else ()
    except UsageError:
        return ()


def for_mpi(text: str, have: Local) -> str:
    """What goes after btl_tcp_if_include, prte_if_include and the like: the CIDR itself, else exact names by commas."""
    names = resolve(text, have)
    network = _network(text)
    return str(network) if network is not None else ",".join(names)


def for_nccl(text: str, have: Local) -> str:
    """What NCCL_SOCKET_IFNAME is set to on this host: `text` itself, or the exact names of a CIDR's interfaces."""
    names = resolve(text, have)
    return text if _network(text) is None else "=" + ",".join(names)


def is_cidr(text: str) -> bool:
    """Whether `text` is a network such as 10.1.0.0/16; UsageError where it has a slash and is none."""
    return _network(text) is not None


def variables(ifname: str) -> dict[str, str]:
    """What every rank's environment gets for --ifname; nothing where there is none."""
    if not ifname:
        return {}
    # Names may differ from host to host, so each rank resolves a CIDR itself (settle).
    named = {} if is_cidr(ifname) else {"NCCL_SOCKET_IFNAME": ifname}
    return {VARIABLE: ifname, **named}


def towards(peer: str) -> str | None:
    """The interface that traffic to `peer` (name or address) leaves by; None where there is no way, or it is this host's loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer, 9))  # asks the routing table alone: a datagram socket sends nothing here
        except OSError:
            return None
        own = ipaddress.IPv4Address(probe.getsockname()[0])
    return None if own.is_loopback else next((name for name, address in local().items() if address and address.ip == own), None)


def own_name_leads_here() -> bool:
    """Whether this host's own name resolves to an address that others could reach, as Gloo takes it: not to 127.0.1.1, nor to nothing."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return not ipaddress.ip_address(str(found[0][4][0]).partition("%")[0]).is_loopback


def name_for_gloo(peer: str) -> None:
    """Gloo listens where this host's own name leads; where that is nowhere, on the way to `peer`, unless an interface is chosen.

    `peer` may be an address of this host.
    """
    if os.environ.get("GLOO_SOCKET_IFNAME") or own_name_leads_here():
        return
    if interface := towards(peer):
        os.environ["GLOO_SOCKET_IFNAME"] = interface


def plugin_rate(environ: Mapping[str, str], source: Source | None = None) -> float | None:
    """Bytes per second of this host's interfaces that busbw's network takes, together, as their hardware says or `environ` tells.

    None where one does not say. Without names they are all of its hardware that is up and has an address, but for what is much slower.
    """
    addresses = local()
    text = environ.get("BUSBW_NET_IFNAME") or environ.get("NCCL_SOCKET_IFNAME", "")
    every = read_interfaces(source or Live())
    have = {name: interface for name, interface in every.items() if addresses.get(name) and interface.up}
    taken = [name for name in selected(text) if addresses.get(name)] if text else _carriers(have)
    told = environ.get("BUSBW_NET_SPEED", "")
    if told.isdecimal():
        return len(taken) * int(told) * MBIT or None
    rates = [have[name].rate for name in taken if name in have and have[name].physical]
    known = [rate for rate in rates if rate]
    return sum(known) if known and len(known) == len(taken) else None


def _carriers(have: Mapping[str, Interface]) -> list[str]:
    hardware = {name: interface.rate for name, interface in have.items() if interface.physical and not interface.master}
    fastest = max((rate or 0 for rate in hardware.values()), default=0)
    return [name for name, rate in hardware.items() if rate is None or rate * MUCH_SLOWER >= fastest]


def settle(env: Mapping[str, str]) -> None:
    """On a rank: set this process' NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME from `env`'s BUSBW_IFNAME, as this host names them.

    NoMeasurement where this host has no such interface.
    """
    text = env.get(VARIABLE)
    if not text:
        return
    have = local()
    try:
        found = {"NCCL_SOCKET_IFNAME": for_nccl(text, have), "GLOO_SOCKET_IFNAME": resolve(text, have)[0]}
    except BusbwError as error:
        raise NoMeasurement(error.message, f"{error.hint}; a network as CIDR, like --ifname 10.1.0.0/16, fits differing names") from error
    os.environ.update(found)


def _network(text: str) -> ipaddress.IPv4Network | None:
    if "/" not in text:
        return None
    try:
        return ipaddress.IPv4Network(text, strict=False)
    except ValueError as error:
        raise UsageError(f"--ifname {text}: it is not an IPv4 network", "write a network like 10.1.0.0/16, or a name like eth0") from error


def _matching(text: str, have: Local) -> tuple[str, ...]:
    exclude = text.startswith("^")
    rest = text.removeprefix("^")
    exact = rest.startswith("=")
    wanted = tuple(part.strip() for part in rest.removeprefix("=").split(","))
    if not all(wanted):
        raise UsageError(f"--ifname '{text}': a name is missing", "write names by commas, like eth0, =eth0, ^docker,lo, or 10.1.0.0/16")

    def hit(name: str) -> bool:
        return name in wanted if exact else name.startswith(wanted)

    if not exclude:
        return tuple(name for name in have if hit(name))
    # As NCCL does, an exclusion leaves only what could carry traffic between hosts.
    return tuple(name for name, address in have.items() if not hit(name) and address and not address.ip.is_loopback)
