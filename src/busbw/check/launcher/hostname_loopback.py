"""A host whose own name resolves to a loopback address."""

from collections.abc import Iterator
from ipaddress import ip_address

from busbw.check.base import Check, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

PATH, NAME = "/etc/hosts", "/proc/sys/kernel/hostname"
LOCAL = "localhost"

ALONE = "in /etc/hosts, replace {address} in the line of {own} with the address of this host"
SHARED = "in /etc/hosts, take {own} out of the line of {address}, which keeps {others}; add a line with the address of this host and {own}"

ROW = CheckRow(
    id="BW202",
    name="hostname-loopback",
    layer=Layer.LAUNCHER,
    title="the host's own name in /etc/hosts",
    right="an address that other hosts can reach, or none",
    why="Debian's installer maps the host's own name to 127.0.1.1. torchrun and Gloo ranks publish their name or address. Other hosts "
    "then connect to themselves, and startup hangs.",
    fix=ALONE,
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
    if name.partition(".")[0] == LOCAL:
        yield skipped(f"this host's name is {name}")
        return
    own = {name, name.partition(".")[0]}
    lines = [line.partition("#")[0].split() for line in reading.text.splitlines()]
    of_name = [words for words in lines if own & set(words[1:])]
    loopback = [words for words in of_name if _loopback(words[0])]
    for words in loopback:
        evidence = Evidence(PATH, " ".join(words), f"an address of {name}")
        yield warned("", f"{PATH} gives {name} the address {words[0]}", evidence, fix=_fix(words, own))
    if not loopback:
        yield passed("", f"{PATH} gives {name} no loopback address", *(Evidence(PATH, " ".join(words)) for words in of_name))


def _fix(words: list[str], own: set[str]) -> str:
    """A line may also hold localhost, which must stay."""
    named, others = [word for word in words[1:] if word in own], [word for word in words[1:] if word not in own]
    return filled(SHARED if others else ALONE, address=words[0], own=named, others=others)


def _loopback(text: str) -> bool:
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False


CHECK = Check(ROW, look)
