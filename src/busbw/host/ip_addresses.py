"""IP addresses of the interfaces in this network namespace: the first IPv4 address of each, and
all IPv6 addresses.
"""

import json
from ipaddress import IPv4Interface, IPv6Address, IPv6Interface

from busbw.host import addresses
from busbw.host.source import Source

IPV4, IPV6 = "addresses", "/proc/net/if_inet6"
Address = IPv4Interface | IPv6Interface


def read_addresses(source: Source) -> dict[str, list[Address]] | str:
    """Addresses by interface; those without one have an empty list.

    A text says why they are unknown.
    """
    reading = source.call(IPV4, _first)
    if reading.text is None:
        return reading.reason
    found: dict[str, list[Address]] = {}
    for name, text in json.loads(reading.text).items():
        found[name] = [IPv4Interface(text)] if text else []
    for name, address in parse_inet6(source.read(IPV6).text or ""):
        found.setdefault(name, []).append(address)
    return found


def _first() -> str:
    return json.dumps(
        {name: str(address) if address else "" for name, address in addresses.local().items()}
    )


def parse_inet6(text: str) -> list[tuple[str, IPv6Interface]]:
    """Name and address from each line of /proc/net/if_inet6: address, index, prefix length,
    scope, flags (hex), name.
    """
    found = []
    for fields in map(str.split, text.splitlines()):
        if len(fields) == 6 and len(fields[0]) == 32:
            try:
                address = IPv6Address(int(fields[0], 16))
                found.append((fields[5], IPv6Interface((address, int(fields[2], 16)))))
            except ValueError:
                continue
    return found
