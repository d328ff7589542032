"""A host whose own name resolves to a loopback address."""

from collections.abc import Iterator
from ipaddress import ip_address

from busbw.check.base import Check, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Evidence, Found, Layer

PATH, NAME = "/etc/hosts", "/proc/sys/kernel/hostname"

ROW = CheckRow(
    id="BW202",
    name="hostname-loopback",
    layer=Layer.LAUNCHER,
    title="the host's own name in /etc/hosts",
    right="an address that other hosts can reach, or none",
    why="Debian's installer maps the host's own name to 127.0.1.1. torchrun and Gloo ranks publish their name or address. Other hosts "
    "then connect to themselves, and startup hangs.",
    fix="in /etc/hosts, replace {address} with the address of this host",
    stays="permanent, unless cloud-init rewrites the file: manage_etc_hosts",
    reads=(PATH, NAME),
    sources=("Debian reference, the hostname resolution",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Lines with the host's own name, full or short."""
    reading, name = machine.read(PATH), machine.text(NAME)
    if reading.text is None or not name:
        missing = reading if reading.text is None else machine.read(NAME)
        yield unread("", missing, "the host's name")
        return
    if name == "localhost":
        yield skipped("this host's name is localhost")
        return
    own = {name, name.partition(".")[0]}
    lines = [line.partition("#")[0].split() for line in reading.text.splitlines()]
    of_name = [words for words in lines if own & set(words[1:])]
    loopback = [words for words in of_name if _loopback(words[0])]
    for words in loopback:
        evidence = Evidence(PATH, " ".join(words), f"an address of {name}")
        yield warned("", f"{PATH} gives {name} the address {words[0]}", evidence, fix=ROW.fix.format(address=words[0]))
    if not loopback:
        yield passed("", f"{PATH} gives {name} no loopback address", *(Evidence(PATH, " ".join(words)) for words in of_name))


def _loopback(text: str) -> bool:
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False


CHECK = Check(ROW, look)
