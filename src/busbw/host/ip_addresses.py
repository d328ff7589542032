"""IP addresses of the interfaces in this network namespace: the first IPv4 address of each, and
all IPv6 addresses, through a `Source`, which a snapshot records. `addresses` asks for IPv4 alone.
"""

import json
from ipaddress import IPv4Interface, IPv6Address, IPv6Interface

from busbw.host.addresses import local
from busbw.host.source import Source

IPV4, IPV6 = "addresses", "/proc/net/if_inet6"
Address = IPv4Interface | IPv6Interface


def read_addresses(source: Source) -> dict[str, list[Address]] | str:
    """The addresses of each interface by its name, an empty list for one without an address.

    A text says why they are unknown.
    """
    reading = source.call(IPV4, _ipv4_json)
    if reading.text is None:
        return reading.reason
    addresses: dict[str, list[Address]] = {}
    for name, text in json.loads(reading.text).items():
        addresses[name] = [IPv4Interface(text)] if text else []
    for name, address in parse_inet6(source.read(IPV6).text or ""):
        addresses.setdefault(name, []).append(address)
    return addresses


def _ipv4_json() -> str:
    return json.dumps({name: str(address) if address else "" for name, address in local().items()})


def parse_inet6(text: str) -> list[tuple[str, IPv6Interface]]:
    """Name and address from each line of /proc/net/if_inet6.

    A line has the address, index, prefix length, scope and flags in hex, then the name.
    """
    addresses = []
    for fields in map(str.split, text.splitlines()):
        if len(fields) == 6 and len(fields[0]) == 32:
            try:
                address = IPv6Address(int(fields[0], 16))
                addresses.append((fields[5], IPv6Interface((address, int(fields[2], 16)))))
            except ValueError:
                continue
    return addresses
