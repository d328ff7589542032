"""Packet filters for incoming connections."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, unread, warned
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.firewall import COMMAND, Chain, closed_chains, ruleset

MODULES, CALL = "/proc/modules", "nft ruleset"
TABLES, LEGACY = "nf_tables", "iptable_filter"

ROW = CheckRow(
    id="BW122",
    name="firewall",
    layer=Layer.KERNEL,
    title="packet filters for incoming connections",
    right="no filter drops what other hosts of the cluster send",
    why="MPI, NCCL and PyTorch listen on ports that the kernel assigns. If those are blocked, a job hangs at startup without a message.",
    fix="with CIDR the network of the cluster: nft insert rule {place} ip saddr CIDR accept",
    stays="lost at the next reboot; permanent with firewall-cmd --permanent --zone=trusted --add-source=CIDR, or with ufw allow from CIDR",
    reads=(MODULES, " ".join(COMMAND)),
    sources=("nft(8)", "Open MPI issues 12508 and 13113"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Chains that drop incoming packets. The rules are read only if nftables is loaded or built in, since reading would load it."""
    loaded = machine.read(MODULES)
    if loaded.text is None:
        yield unread("", loaded, "the list of modules")
        return
    if LEGACY in machine.modules:
        message = f"the module {LEGACY} is loaded; busbw does not read its rules"
        yield not_offered("", message, fix="iptables-legacy -S INPUT")
    if TABLES in machine.modules or not loaded.text:
        yield from _tables(machine)
    elif LEGACY not in machine.modules:
        yield passed("", "no packet filter is loaded", Evidence(MODULES, f"neither {TABLES} nor {LEGACY}"))


def _tables(machine: Machine) -> Iterator[Found]:
    reading = machine.call(CALL, ruleset)
    if reading.text is None:
        yield unread("", reading, "the rules of nftables", fix="sudo busbw check")
        return
    try:
        closed = closed_chains(reading.text)
    except ValueError as error:
        yield not_offered("", f"{' '.join(COMMAND)}: {error}")
        return
    yield from (_closed(chain) for chain in closed)
    if not closed:
        yield passed("", "no chain drops packets by default", Evidence(" ".join(COMMAND), "no default drop"))


def _closed(chain: Chain) -> Found:
    evidence = Evidence(" ".join(COMMAND), f"{chain.place} drops packets by default", "the cluster's network is accepted")
    if chain.accepts:
        accepted = ", ".join(chain.accepts)
        message = f"it accepts {accepted} and drops the rest; whether this covers the cluster is unknown"
        return not_offered(
            chain.place,
            message,
            evidence,
            fix=filled("compare {accepted} with the addresses of the other hosts", accepted=list(chain.accepts)),
        )
    message = "it drops incoming connections, and accepts no whole network or interface"
    return warned(chain.place, message, evidence, fix=filled(ROW.fix, place=chain.place.split(" ")))


CHECK = Check(ROW, look)
