"""Variables of the TCP sockets of NCCL and Gloo."""

from collections.abc import Iterator
from ipaddress import IPv4Interface

from busbw.check.base import ENVIRONMENT, check, failed, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import (
    REMOVE_VARIABLE,
    VARIABLE_SOURCES,
    NcclSetting,
    is_machine_known,
    parse_selection,
    settings,
)
from busbw.check.shell_words import word
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import parse_int
from busbw.host.ip_addresses import IPV4, Address, read_addresses

NCCL = "NCCL_SOCKET_IFNAME"
NET = "/sys/class/net"
# Interfaces that reach no other host, or have the same address on each. NCCL itself excludes only
# lo and docker*.
VIRTUAL = (
    "virbr", "br-", "cni", "flannel", "cali", "cilium", "kube", "podman", "lxcbr", "vmnet", "veth",
    "tun", "tailscale", "wg",
)  # fmt: skip
DOCKER = "docker"  # which NCCL takes last, unless it is named

SOCKET_IFNAME = CheckRow(
    id="BW169",
    name="nccl-socket-ifname",
    layer=Layer.NCCL,
    title=f"interfaces that {NCCL} selects",
    right="interfaces that reach the other hosts; set if bridges such as virbr0 exist",
    why=(
        "NCCL connects its ranks over these interfaces before any RDMA. An address that others"
        " cannot reach hangs the start. Without = each entry is a prefix. A name that does not"
        " exist on the host stops NCCL."
    ),
    fix=f"export {NCCL}=^docker,lo,virbr0",
    stays="set it in the job script or /etc/nccl.conf",
    reads=(*VARIABLE_SOURCES, NET, IPV4),
    sources=("NCCL user guide, NCCL_SOCKET_IFNAME",),
)
THREADS, SOCKETS, DISABLE = "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_IB_DISABLE"
MAX_THREADS, MAX_SOCKETS = 16, 64
GLOO = "GLOO_SOCKET_IFNAME"


@check(SOCKET_IFNAME, needs=ENVIRONMENT)
def check_socket_ifname(machine: Machine) -> Iterator[Finding]:
    """The variable, compared with the interfaces of this host."""
    variables = settings(machine)
    names = (*machine.interfaces, "lo") if machine.interfaces else ()
    setting = variables.get(NCCL)
    if setting is None:
        yield _judge_default(machine, names)
    else:
        yield _judge_chosen(machine, setting, names)


def _judge_default(machine: Machine, names: tuple[str, ...]) -> Finding:
    if not names:
        return not_offered("", f"{NCCL} is not set, and no interface is visible")
    evidence = (Evidence(f"${NCCL}", "not set"), Evidence(NET, ", ".join(names)))
    addresses = read_addresses(machine)
    # NCCL uses only interfaces with an address; those of pods (cali, veth) have no IPv4 address.
    bridges = [name for name in names if name.startswith(VIRTUAL) and _has_ipv4(addresses, name)]
    if bridges and not any(name.startswith("ib") for name in names):
        message = (
            f"{NCCL} is not set, and NCCL may choose {', '.join(bridges)}, which reaches no other"
            " host"
        )
        return warned(
            "", message, *evidence, fix=f"export {NCCL}=^docker,lo,{word(','.join(bridges))}"
        )
    return passed("", f"{NCCL} is not set: NCCL chooses, ib* first, docker* and lo last", *evidence)


def _has_ipv4(addresses: dict[str, list[Address]] | str, name: str) -> bool:
    """Whether an interface has an IPv4 address, or may have one, as they cannot be read."""
    if isinstance(addresses, str):
        return True
    return any(isinstance(address, IPv4Interface) for address in addresses.get(name, []))


def _judge_chosen(machine: Machine, setting: NcclSetting, names: tuple[str, ...]) -> Finding:
    selection = parse_selection(setting.value)
    evidence = [setting.evidence(), Evidence(NET, ", ".join(names) or "no interface")]
    if not names:
        why = "the interfaces of the hosts are unknown"
        if is_machine_known(machine):
            why = "no interface is visible here"
        return not_offered("", f"{setting.text}: {why}", *evidence)
    chosen = selection.chosen(names)
    if not chosen:
        return failed(
            "",
            f"{setting.text} selects no interface of this host: NCCL stops",
            *evidence,
            fix=setting.unset,
        )
    wide = selection.too_wide(names)
    if wide:
        also = "; ".join(f"{token} also selects {', '.join(more)}" for token, more in wide.items())
        return warned(
            "", f"{setting.text}: {also}", *evidence, fix=setting.change_to(selection.spelled())
        )
    virtual = [name for name in chosen if name.startswith((*VIRTUAL, DOCKER))]
    if virtual:
        message = f"{setting.text} selects {', '.join(virtual)}, which reaches no other host"
        kept = ",".join(name for name in chosen if name not in virtual)
        return warned(
            "", message, *evidence, fix=setting.change_to(f"={kept}") if kept else setting.unset
        )
    return passed("", f"{setting.text} selects {', '.join(chosen)}", *evidence)


SOCKET_THREADS = CheckRow(
    id="BW174",
    name="nccl-socket-threads",
    layer=Layer.NCCL,
    title=f"{THREADS} and {SOCKETS}",
    right=(
        f"at most {MAX_THREADS} threads, and at most {MAX_SOCKETS} sockets in total; 4 x 4 is a"
        " good start for 100 Gbit/s"
    ),
    why=(
        "NCCL rejects values above its limits. Each connection to another host has its own "
        "threads, so many of them compete with the application. With RDMA the variables have no "
        "effect."
    ),
    fix=f"export {THREADS}=4 {SOCKETS}=4",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL user guide, NCCL_SOCKET_NTHREADS",),
)


@check(SOCKET_THREADS, needs=ENVIRONMENT)
def check_socket_threads(machine: Machine) -> Iterator[Finding]:
    """The number of threads, and of sockets in all."""
    variables = settings(machine)
    present = [variables[name] for name in (THREADS, SOCKETS) if name in variables]
    if not present:
        yield passed("", f"neither {THREADS} nor {SOCKETS} is set")
        return
    text = " ".join(setting.text for setting in present)
    evidence = [setting.evidence() for setting in present]
    threads = parse_int(variables[THREADS].value) if THREADS in variables else 1
    sockets = parse_int(variables[SOCKETS].value) if SOCKETS in variables else 1
    disabled = DISABLE in variables and parse_int(variables[DISABLE].value) != 0
    if threads > MAX_THREADS or threads * sockets > MAX_SOCKETS:
        message = (
            f"{text}: {threads} threads and {threads * sockets} sockets; NCCL accepts at most"
            f" {MAX_THREADS} and {MAX_SOCKETS}"
        )
        yield warned("", message, *evidence, fix=SOCKET_THREADS.fix)
    elif any(port.active for port in machine.ports) and not disabled:
        yield passed("", f"{text} has no effect while NCCL uses RDMA", *evidence)
    else:
        yield passed("", f"{text}: {threads * sockets} sockets for each connection", *evidence)


GLOO_SOCKET_IFNAME = CheckRow(
    id="BW190",
    name="gloo-socket-ifname",
    layer=Layer.NCCL,
    title=f"{GLOO}, compared with {NCCL}",
    right="not set, or an exact name of this host that NCCL may use too",
    why=(
        "PyTorch uses Gloo for CPU groups in addition to NCCL. Gloo takes exact names, without "
        "prefixes, = or ^. A name that does not exist on the host prevents the start. An interface "
        "other than NCCL's may not reach the other hosts."
    ),
    fix=f"export {GLOO}={{netdev}}",
    stays="set it in the job script",
    reads=(*VARIABLE_SOURCES, NET),
    sources=("PyTorch documentation, torch.distributed, common environment variables",),
)


@check(GLOO_SOCKET_IFNAME, needs=ENVIRONMENT)
def check_gloo_socket_ifname(machine: Machine) -> Iterator[Finding]:
    """Both variables, compared with the interfaces of this host."""
    variables = settings(machine)
    gloo, nccl = variables.get(GLOO), variables.get(NCCL)
    if gloo is None:
        yield passed("", f"{GLOO} is not set: Gloo takes the interface of the host's own name")
        return
    names = (*machine.interfaces, "lo") if machine.interfaces else ()
    evidence = [
        gloo.evidence(),
        *([nccl.evidence()] if nccl else []),
        Evidence(NET, ", ".join(names) or "no interface"),
    ]
    chosen = parse_selection(nccl.value).chosen(names) if nccl else names
    gloo_names = gloo.value.split(",")
    absent = [name for name in gloo_names if name not in names]
    if not names:
        yield not_offered("", f"{gloo.text}: no interface is visible here", *evidence)
    elif absent:
        other = gloo.change_to(chosen[0]) if chosen and chosen[0] != "lo" else gloo.unset
        yield failed(
            "", f"{gloo.text}: this host has no interface {', '.join(absent)}", *evidence, fix=other
        )
    elif nccl and not set(gloo_names) & set(chosen):
        fix = gloo.change_to(chosen[0]) if chosen else nccl.unset
        yield warned(
            "", f"{gloo.text} is not among the interfaces of {nccl.text}", *evidence, fix=fix
        )
    else:
        yield passed("", f"{gloo.text} is an interface of this host", *evidence)
