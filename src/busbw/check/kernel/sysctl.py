"""Kernel settings: memory, TCP and ports."""

from collections.abc import Iterator

from busbw.check.base import broken, check, judged, skipped, unread
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.cpu import count_list
from busbw.host.interfaces import number
from busbw.host.settings import bracketed, numbers

STAYS_AFTER_REBOOT = "after reboot: lost; write it to a file in /etc/sysctl.d"
NUMA_BALANCING_FILE, NODES = "/proc/sys/kernel/numa_balancing", "/sys/devices/system/node/online"
ZONE_RECLAIM_FILE = "/proc/sys/vm/zone_reclaim_mode"
THP_FILE = "/sys/kernel/mm/transparent_hugepage/enabled"
IPV4 = "/proc/sys/net/ipv4"
# The kernel's defaults on machines with enough memory.
MIN_BUFFER_BYTES = {"tcp_rmem": 6 << 20, "tcp_wmem": 4 << 20}
CONGESTION_FILE = "/proc/sys/net/ipv4/tcp_congestion_control"
PACED_CONGESTION_CONTROL = "bbr"  # prefix of all its versions
PORT_RANGE_FILE = "/proc/sys/net/ipv4/ip_local_port_range"
DEFAULT_PORT_RANGE = (32768, 60999)
PTRACE_FILE = "/proc/sys/kernel/yama/ptrace_scope"
MAX_PTRACE_SCOPE = 1  # processes may allow it to others with prctl(PR_SET_PTRACER)


def _judge_off(machine: Machine, path: str, setting: str, fix: str) -> Iterator[Finding]:
    """Pass if the file at `path` contains 0; `setting` begins the message."""
    reading = machine.read(path)
    value = number(reading.text)
    if value is None:
        yield unread("", reading, setting)
        return
    evidence = Evidence(path, str(value), "0")
    yield judged(
        right=value == 0,
        subject="",
        good=f"{setting} is off",
        bad=f"{setting} is on",
        evidence=(evidence,),
        fix=fix,
    )


NUMA_BALANCING = CheckRow(
    id="BW115",
    name="kernel-numa-balancing",
    layer=Layer.KERNEL,
    title="automatic NUMA balancing",
    right="0 on machines with more than one NUMA node",
    why=(
        "The kernel unmaps pages to see who uses them, and migrates them. Each such fault delays a"
        " rank, and the others wait for it."
    ),
    fix="sysctl -w kernel.numa_balancing=0",
    stays=STAYS_AFTER_REBOOT,
    reads=(NUMA_BALANCING_FILE, NODES),
    sources=("Linux, Documentation/admin-guide/sysctl/kernel.rst: numa_balancing",),
)


@check(NUMA_BALANCING)
def check_numa_balancing(machine: Machine) -> Iterator[Finding]:
    """Whether NUMA balancing is off on a machine with several nodes."""
    if count_list(machine.text(NODES) or "") == 1:
        yield skipped("the machine has one NUMA node")
        return
    yield from _judge_off(
        machine, NUMA_BALANCING_FILE, "automatic NUMA balancing", NUMA_BALANCING.fix
    )


ZONE_RECLAIM = CheckRow(
    id="BW116",
    name="kernel-zone-reclaim",
    layer=Layer.KERNEL,
    title="memory reclaim before other NUMA nodes are used",
    right="0",
    why=(
        "Otherwise an allocation first frees pages of its own node, such as cached training data,"
        " while other nodes have free memory."
    ),
    fix="sysctl -w vm.zone_reclaim_mode=0",
    stays=STAYS_AFTER_REBOOT,
    reads=(ZONE_RECLAIM_FILE,),
    sources=("Linux, Documentation/admin-guide/sysctl/vm.rst: zone_reclaim_mode",),
)


@check(ZONE_RECLAIM)
def check_zone_reclaim(machine: Machine) -> Iterator[Finding]:
    yield from _judge_off(machine, ZONE_RECLAIM_FILE, "zone reclaim", ZONE_RECLAIM.fix)


THP = CheckRow(
    id="BW117",
    name="kernel-thp",
    layer=Layer.KERNEL,
    title="transparent huge pages",
    right="madvise or always",
    why=(
        "With never, host buffers use 4 KiB pages: more TLB misses, and more pages to pin when"
        " memory is registered."
    ),
    fix=f"echo madvise > {THP_FILE}",
    stays="after reboot: lost; add transparent_hugepage=madvise to the kernel command line",
    reads=(THP_FILE,),
    sources=("Linux, Documentation/admin-guide/mm/transhuge.rst",),
)


@check(THP)
def check_thp(machine: Machine) -> Iterator[Finding]:
    """The setting of transparent huge pages, which the file has in brackets."""
    reading = machine.read(THP_FILE)
    chosen = bracketed(reading.text or "")
    if chosen is None:
        yield unread("", reading, "the setting of transparent huge pages")
        return
    text = f"transparent huge pages are set to {chosen}"
    evidence = Evidence(THP_FILE, chosen, "madvise or always")
    yield judged(
        right=chosen != "never", subject="", good=text, bad=text, evidence=(evidence,), fix=THP.fix
    )


TCP_MEMORY = CheckRow(
    id="BW118",
    name="kernel-tcp-memory",
    layer=Layer.KERNEL,
    title="maximum TCP buffer sizes",
    right="at least the kernel's defaults: 6 MiB to receive, 4 MiB to send",
    why=(
        "A stream sends at most one buffer per round trip: 4 MiB at 1 ms are 34 Gbit/s. Smaller"
        " buffers slow down NCCL over TCP."
    ),
    fix="sysctl -w net.ipv4.{name}='{least} {default} {most}'",
    stays=STAYS_AFTER_REBOOT,
    reads=tuple(f"{IPV4}/{name}" for name in MIN_BUFFER_BYTES),
    sources=("Linux, Documentation/networking/ip-sysctl.rst: tcp_rmem, tcp_wmem",),
)


@check(TCP_MEMORY)
def check_tcp_memory(machine: Machine) -> Iterator[Finding]:
    """A finding for each direction, on the maximum size of its buffers."""
    for name, least in MIN_BUFFER_BYTES.items():
        path = f"{IPV4}/{name}"
        reading = machine.read(path)
        values = numbers(reading.text or "")
        if len(values) != 3:
            yield unread(name, reading, "the buffer sizes")
            continue
        text = (
            f"a TCP stream may {'receive' if name == 'tcp_rmem' else 'send'} with a buffer of"
            f" {values[2]} bytes"
        )
        yield judged(
            right=values[2] >= least,
            subject=name,
            good=text,
            bad=f"{text}, less than the kernel's default of {least}",
            evidence=(Evidence(path, str(values[2]), f"{least} or more"),),
            fix=filled(TCP_MEMORY.fix, name=name, least=values[0], default=values[1], most=least),
        )


TCP_CONGESTION = CheckRow(
    id="BW119",
    name="kernel-tcp-congestion",
    layer=Layer.KERNEL,
    title="TCP congestion control",
    right="any except BBR, such as cubic",
    why=(
        "BBR slows down streams that pause, as in collectives. An all_reduce of 16 MiB took 1.4 to"
        " 1.8 times as long as with reno."
    ),
    fix="sysctl -w net.ipv4.tcp_congestion_control=cubic",
    stays=STAYS_AFTER_REBOOT,
    reads=(CONGESTION_FILE,),
    sources=("busbw, benchmarks/net_loss_2cpu_202611",),
)


@check(TCP_CONGESTION)
def check_tcp_congestion(machine: Machine) -> Iterator[Finding]:
    """The congestion control that new connections get by default."""
    reading = machine.read(CONGESTION_FILE)
    if not reading.text:
        yield unread("", reading, "the TCP congestion control")
        return
    text = f"TCP congestion control is {reading.text}"
    yield judged(
        right=not reading.text.startswith(PACED_CONGESTION_CONTROL),
        subject="",
        good=text,
        bad=f"{text}, which slows down streams that pause",
        evidence=(Evidence(CONGESTION_FILE, reading.text, "not BBR"),),
        fix=TCP_CONGESTION.fix,
    )


PORT_RANGE = CheckRow(
    id="BW120",
    name="kernel-port-range",
    layer=Layer.KERNEL,
    title="range of ports that the kernel assigns",
    right=(
        f"as wide as the kernel's default, {DEFAULT_PORT_RANGE[0]} to {DEFAULT_PORT_RANGE[1]},"
        " or wider"
    ),
    why=(
        "NCCL, MPI and PyTorch listen on ports in this range. Large jobs can exhaust a narrow one."
        " A firewall must allow all of it."
    ),
    fix=f"sysctl -w net.ipv4.ip_local_port_range='{DEFAULT_PORT_RANGE[0]} {DEFAULT_PORT_RANGE[1]}'",
    stays=STAYS_AFTER_REBOOT,
    reads=(PORT_RANGE_FILE,),
    sources=("Linux, Documentation/networking/ip-sysctl.rst: ip_local_port_range",),
)


@check(PORT_RANGE)
def check_port_range(machine: Machine) -> Iterator[Finding]:
    """The number of ports that the kernel assigns."""
    reading = machine.read(PORT_RANGE_FILE)
    values = numbers(reading.text or "")
    if len(values) != 2:
        yield unread("", reading, "the range of ports")
        return
    count, usual = values[1] - values[0] + 1, DEFAULT_PORT_RANGE[1] - DEFAULT_PORT_RANGE[0] + 1
    text = f"the kernel assigns {count} ports, {values[0]} to {values[1]}"
    evidence = Evidence(PORT_RANGE_FILE, f"{values[0]} {values[1]}", f"{usual} ports or more")
    yield judged(
        right=count >= usual,
        subject="",
        good=text,
        bad=f"{text}; the default is {usual}",
        evidence=(evidence,),
        fix=PORT_RANGE.fix,
    )


YAMA_PTRACE = CheckRow(
    id="BW123",
    name="yama-ptrace",
    layer=Layer.KERNEL,
    title="cross-memory attach between processes",
    right="ptrace_scope is 0 or 1, or the kernel has no Yama",
    why=(
        "MPI and UCX copy large messages directly between processes. With 2 or 3 they copy twice,"
        " through shared memory."
    ),
    fix="sysctl -w kernel.yama.ptrace_scope=1",
    stays=(
        "after reboot: lost; write it to a file in /etc/sysctl.d (3 cannot be changed before a"
        " reboot)"
    ),
    reads=(PTRACE_FILE,),
    sources=("Linux, Documentation/admin-guide/LSM/Yama.rst", "process_vm_readv(2)"),
)


@check(YAMA_PTRACE)
def check_yama_ptrace(machine: Machine) -> Iterator[Finding]:
    reading = machine.read(PTRACE_FILE)
    value = number(reading.text)
    if broken(reading):
        yield unread("", reading, "ptrace_scope")
        return
    if value is None:
        yield skipped(f"no Yama: {reading.reason or 'the value is not a number'}")
        return
    yield judged(
        right=value <= MAX_PTRACE_SCOPE,
        subject="",
        good=f"ptrace_scope is {value}",
        bad=f"ptrace_scope is {value}: processes of one user cannot copy from each other's memory",
        evidence=(Evidence(PTRACE_FILE, str(value), "0 or 1"),),
        fix=YAMA_PTRACE.fix,
    )
