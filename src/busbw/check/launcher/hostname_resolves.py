"""Whether the host's own name has an address."""

from collections.abc import Iterator
from ipaddress import ip_address

from busbw.check.base import Check, passed, unread, warned
from busbw.check.launcher.programs import own_addresses
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

NAME = "/proc/sys/kernel/hostname"

ROW = CheckRow(
    id="BW203",
    name="hostname-resolves",
    layer=Layer.LAUNCHER,
    title="addresses of the host's own name",
    right="at least one that is not loopback",
    why="Gloo and PyTorch's store resolve the host's own name at startup. Without an address they fail, or first wait for the name server.",
    fix="add a line with the address of this host and its name {name} to /etc/hosts, or register it in DNS",
    stays="permanent, unless cloud-init rewrites /etc/hosts: manage_etc_hosts",
    reads=("getent ahosts HOSTNAME",),
    sources=("getent(1)", "PyTorch documentation, torch.distributed"),
)


def look(machine: Machine) -> Iterator[Found]:
    """What the resolver returns."""
    name = machine.text(NAME)
    if not name:
        yield unread("", machine.read(NAME), "the host's name")
        return
    reading = machine.call("own-addresses", lambda: own_addresses(name))
    if reading.text is None:
        yield unread("", reading, f"the addresses of {name}")
        return
    addresses = list(dict.fromkeys(line.split()[0] for line in reading.text.splitlines() if line.strip()))
    evidence = Evidence(f"getent ahosts {name}", ", ".join(addresses) or "nothing", "an address")
    fix = filled(ROW.fix, name=name)
    if not addresses:
        yield warned("", f"{name} does not resolve", evidence, fix=fix)
    elif all(ip_address(one.partition("%")[0]).is_loopback for one in addresses):
        yield warned("", f"{name} resolves to loopback addresses only", evidence, fix=fix)
    else:
        yield passed("", f"{name} resolves", evidence)


CHECK = Check(ROW, look)
