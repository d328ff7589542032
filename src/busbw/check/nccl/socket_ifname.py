"""The interfaces of NCCL's sockets, over which NCCL starts even with RDMA."""

from collections.abc import Iterator
from ipaddress import IPv4Interface

from busbw.check.base import Check, failed, no_environment, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.selection import parse
from busbw.check.nccl.settings import READS, Setting, known, settings
from busbw.check.shell_words import word
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.ip_addresses import IPV4, read_addresses

VARIABLE = "NCCL_SOCKET_IFNAME"
NET = "/sys/class/net"
# Interfaces that reach no other host, or have the same address on each. NCCL itself excludes only lo and docker*.
VIRTUAL = ("virbr", "br-", "cni", "flannel", "cali", "cilium", "kube", "podman", "lxcbr", "vmnet", "veth", "tun", "tailscale", "wg")
DOCKER = "docker"  # which NCCL takes last, unless it is named

ROW = CheckRow(
    id="BW169",
    name="nccl-socket-ifname",
    layer=Layer.NCCL,
    title=f"interfaces that {VARIABLE} selects",
    right="interfaces that reach the other hosts; set if bridges such as virbr0 exist",
    why="NCCL connects its ranks over these interfaces before any RDMA. An address that others cannot reach hangs the start. Without = "
    "each entry is a prefix. A name that does not exist on the host stops NCCL.",
    fix=f"export {VARIABLE}=^docker,lo,virbr0",
    stays="set it in the job script or /etc/nccl.conf",
    reads=(*READS, NET, IPV4),
    sources=("NCCL user guide, NCCL_SOCKET_IFNAME",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, compared with the interfaces of this host."""
    every = settings(machine)
    if every is None:
        yield no_environment()
        return
    names = (*machine.interfaces, "lo") if machine.interfaces else ()
    setting = every.get(VARIABLE)
    yield _unset(machine, names) if setting is None else _set(machine, setting, names)


def _unset(machine: Machine, names: tuple[str, ...]) -> Found:
    if not names:
        return not_offered("", f"{VARIABLE} is not set, and no interface is visible")
    evidence = (Evidence(f"${VARIABLE}", "not set"), Evidence(NET, ", ".join(names)))
    addresses = read_addresses(machine)
    # NCCL uses only interfaces with an address; those of pods (cali, veth) have no IPv4 address.
    bridges = [
        name
        for name in names
        if name.startswith(VIRTUAL)
        and (isinstance(addresses, str) or any(isinstance(one, IPv4Interface) for one in addresses.get(name, [])))
    ]
    if bridges and not any(name.startswith("ib") for name in names):
        message = f"{VARIABLE} is not set, and NCCL may choose {', '.join(bridges)}, which reaches no other host"
        return warned("", message, *evidence, fix=f"export {VARIABLE}=^docker,lo,{word(','.join(bridges))}")
    return passed("", f"{VARIABLE} is not set: NCCL chooses, ib* first, docker* and lo last", *evidence)


def _set(machine: Machine, setting: Setting, names: tuple[str, ...]) -> Found:
    selection = parse(setting.value)
    evidence = [setting.evidence(), Evidence(NET, ", ".join(names) or "no interface")]
    if not names:
        why = "no interface is visible here" if known(machine) else "the interfaces of the hosts are unknown"
        return not_offered("", f"{setting.text}: {why}", *evidence)
    chosen = selection.chosen(names)
    if not chosen:
        return failed("", f"{setting.text} selects no interface of this host: NCCL stops", *evidence, fix=setting.unset)
    wide = selection.too_wide(names)
    if wide:
        also = "; ".join(f"{token} also selects {', '.join(more)}" for token, more in wide.items())
        return warned("", f"{setting.text}: {also}", *evidence, fix=setting.to(selection.spelled()))
    virtual = [name for name in chosen if name.startswith((*VIRTUAL, DOCKER))]
    if virtual:
        message = f"{setting.text} selects {', '.join(virtual)}, which reaches no other host"
        kept = ",".join(name for name in chosen if name not in virtual)
        return warned("", message, *evidence, fix=setting.to(f"={kept}") if kept else setting.unset)
    return passed("", f"{setting.text} selects {', '.join(chosen)}", *evidence)


CHECK = Check(ROW, look)
