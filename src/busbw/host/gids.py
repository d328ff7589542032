"""The GID table of an RDMA port, from sysfs (Documentation/ABI/stable/sysfs-class-infiniband)."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from busbw.host.source import Source

V2 = "RoCE v2"
_GAP = 16  # as many empty entries end the search; tables have up to 256, filled from the start


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry. `kind` and `netdev` are empty where the network namespace hides them."""

    index: int
    address: IPv6Address
    kind: str  # RoCE v2, IB/RoCE v1
    netdev: str

    @property
    def ipv4(self) -> IPv4Address | None:
        """The IPv4 address that it stands for."""
        return self.address.ipv4_mapped

    @property
    def routable(self) -> bool:
        """Whether routers forward it: an IPv4 address, or an IPv6 address that is not
        link-local.
        """
        return not (self.ipv4 or self.address).is_link_local


def read_gids(source: Source, port: str) -> tuple[Gid, ...]:
    """The entries in use of the port at this directory, by index.

    Empty if the table cannot be read.
    """
    found: list[Gid] = []
    empty = index = 0
    while empty < _GAP:
        address = _address(source.read(f"{port}/gids/{index}").text)
        if address is None:
            empty += 1
        else:
            empty = 0
            kind, netdev = (
                source.read(f"{port}/gid_attrs/{name}/{index}").text or ""
                for name in ("types", "ndevs")
            )
            found.append(Gid(index, address, kind, netdev))
        index += 1
    return tuple(found)


def _address(text: str | None) -> IPv6Address | None:
    try:
        address = IPv6Address(text or "::")
    except ValueError:
        return None
    return address if int(address) else None
