"""Selects the network interfaces of a job by --ifname.

Its value has the syntax of NCCL_SOCKET_IFNAME (`eth`, `=eth0`, `^docker`), or is a CIDR. MPI and
its runtime accept exact names or a CIDR, NCCL prefixes but no CIDR, and Gloo one exact name. Only a
CIDR fits hosts with different interface names, so every rank resolves it on its own host.
"""

import ipaddress
import logging
import os
import socket
from collections.abc import Mapping

from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.host.addresses import local as local

LOG = logging.getLogger(__name__)

VARIABLE = "BUSBW_IFNAME"  # carries --ifname to every rank

Local = Mapping[str, ipaddress.IPv4Interface | None]


def resolve(text: str, have: Local) -> tuple[str, ...]:
    """The names among `have` that `text` selects.

    Raises UsageError with the existing names if it selects none.
    """
    network = _network(text)
    if network is not None:
        names = tuple(name for name, address in have.items() if address and address.ip in network)
    else:
        names = _matching(text, have)
    if not names:
        existing = ", ".join(
            f"{name} ({address})" if address else name for name, address in have.items()
        )
        raise UsageError(
            f"--ifname {text}: no such interface on {socket.gethostname()}", f"it has {existing}"
        )
    return names


def selected(text: str) -> tuple[str, ...]:
    """The interfaces that `text` selects on this host.

    Empty if there are none: a host that only launches may be outside the network.
    """
    try:
        return resolve(text, local()) if text else ()
    except UsageError:
        return ()


def for_mpi(text: str, have: Local) -> str:
    """The value for btl_tcp_if_include and the like: the CIDR, or exact names with commas."""
    names = resolve(text, have)
    network = _network(text)
    return str(network) if network is not None else ",".join(names)


def for_prrte(text: str, have: Local) -> str:
    """The value for prte_if_include: the CIDR, or one exact name.

    PRRTE of Open MPI 5 crashes with two (openpmix/prrte#2553).
    """
    names = for_mpi(text, have).split(",")
    for name in names:
        address = have.get(name)
        if address and not address.ip.is_loopback:
            return name
    return names[0]


def for_nccl(text: str, have: Local) -> str:
    """The value of NCCL_SOCKET_IFNAME on this host.

    It is `text`, or the exact names of a CIDR's interfaces.
    """
    names = resolve(text, have)
    return text if _network(text) is None else "=" + ",".join(names)


def is_cidr(text: str) -> bool:
    """Whether `text` is a network such as 10.1.0.0/16. Raises UsageError for an invalid network."""
    return _network(text) is not None


def variables(ifname: str) -> dict[str, str]:
    """The variables that --ifname adds to the environment of every rank."""
    if not ifname:
        return {}
    # Interface names differ between hosts, so each rank resolves a CIDR itself (settle).
    nccl = {} if is_cidr(ifname) else {"NCCL_SOCKET_IFNAME": ifname}
    return {VARIABLE: ifname, **nccl}


def towards(peer: str) -> str | None:
    """The interface of the route to `peer`, a name or address; None without one or for loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # This only queries the routing table: a datagram socket sends nothing here.
            probe.connect((peer, 9))
        except OSError:
            return None
        source_ip = ipaddress.IPv4Address(probe.getsockname()[0])
    if source_ip.is_loopback:
        return None
    for name, address in local().items():
        if address and address.ip == source_ip:
            return name
    return None


def own_name_leads_here() -> bool:
    """Whether this host's name resolves to an address that other hosts could reach.

    Gloo listens on that address.
    """
    try:
        resolved = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    address = str(resolved[0][4][0]).partition("%")[0]
    return not ipaddress.ip_address(address).is_loopback


def name_for_gloo(peer: str) -> None:
    """Set GLOO_SOCKET_IFNAME to the interface towards `peer`, which may be this host.

    Nothing is set if the variable is set, or if this host's name resolves to a reachable address.
    """
    if os.environ.get("GLOO_SOCKET_IFNAME") or own_name_leads_here():
        return
    interface = towards(peer)
    if interface:
        LOG.info(
            "Gloo uses %s, which leads to %s: this host's name resolves to no address for other"
            " hosts",
            interface,
            peer,
        )
        os.environ["GLOO_SOCKET_IFNAME"] = interface


def set_interface_variables(env: Mapping[str, str]) -> None:
    """Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME of a rank's process from BUSBW_IFNAME in `env`.

    NoMeasurement if this host has no such interface.
    """
    text = env.get(VARIABLE)
    if not text:
        return
    have = local()
    try:
        settings = {
            "NCCL_SOCKET_IFNAME": for_nccl(text, have),
            "GLOO_SOCKET_IFNAME": resolve(text, have)[0],
        }
    except BusbwError as error:
        raise NoMeasurement(
            error.message,
            f"{error.hint}; a CIDR, like --ifname 10.1.0.0/16, fits hosts with different names",
        ) from error
    LOG.info("%s=%s selects %s", VARIABLE, text, settings)
    os.environ.update(settings)


def _network(text: str) -> ipaddress.IPv4Network | None:
    if "/" not in text:
        return None
    try:
        return ipaddress.IPv4Network(text, strict=False)
    except ValueError as error:
        raise UsageError(
            f"--ifname {text}: not an IPv4 network",
            "write a network like 10.1.0.0/16, or a name like eth0",
        ) from error


def _matching(text: str, have: Local) -> tuple[str, ...]:
    exclude = text.startswith("^")
    listed = text.removeprefix("^")
    exact = listed.startswith("=")
    names = tuple(part.strip() for part in listed.removeprefix("=").split(","))
    if not all(names):
        raise UsageError(
            f"--ifname '{text}': a name is missing",
            "write names separated by commas, like eth0, =eth0, ^docker,lo, or 10.1.0.0/16",
        )

    def matches(name: str) -> bool:
        return name in names if exact else name.startswith(names)

    if not exclude:
        return tuple(name for name in have if matches(name))
    # As in NCCL, an exclusion leaves only interfaces that could reach other hosts.
    return tuple(
        name
        for name, address in have.items()
        if not matches(name) and address and not address.ip.is_loopback
    )
