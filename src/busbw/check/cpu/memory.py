"""Memory of the host: NUMA nodes, huge pages, free memory and errors."""

import re
from collections.abc import Iterator

from busbw.check.base import check, failed, judged, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.rates import DAY_S, HOUR_S, RATE_UNKNOWN, interval_s, risen, too_fast
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted, span
from busbw.host.cpu import meminfo
from busbw.host.interfaces import number
from busbw.host.pci import AMAZON, read_devices
from busbw.host.settings import cpu_set, named_counts

NODES = "/sys/devices/system/node"
# What a node may have less than the largest: one of 24 modules is 4 %, and firmware and the crash
# kernel keep up to 4 GiB, mostly of node 0.
MAX_MISSING_SHARE, MAX_RESERVED_BYTES = 0.03, 4 << 30

NUMA_NODES = CheckRow(
    id="BW150",
    name="mem-numa-nodes",
    layer=Layer.CPU,
    title="memory of each NUMA node",
    right="each node with CPUs has memory, and about as much as the others",
    why=(
        "Ranks near a node without memory allocate on another node, and their buffers are across"
        " the link between the sockets."
    ),
    fix=(
        "dmidecode -t memory shows which module near node {node} is missing or off; drain the host,"
        " power it off, and reseat or replace it"
    ),
    stays="permanent: hardware or a BIOS setting",
    reads=(f"{NODES}/online", f"{NODES}/node*/cpulist", f"{NODES}/node*/meminfo"),
    sources=("Linux, Documentation/ABI/stable/sysfs-devices-node",),
)
STATUS = "/proc/self/status"
SYS_NICE = 23  # linux/capability.h
MEMINFO = "/proc/meminfo"
HUGEPAGE_SIZES = "/sys/kernel/mm/hugepages"
SPARE_HUGEPAGES = 5120  # of 2 MiB: 10 GiB
MIN_FREE_SHARE = 0.1
CONTROLLERS = "/sys/devices/system/edac/mc"
MAX_CORRECTABLE_PER_DAY = 10  # mcelog reports a module above this many correctable errors a day


@check(NUMA_NODES)
def check_numa_nodes(machine: Machine) -> Iterator[Finding]:
    """The memory of each node with CPUs; the memory of a GPU may be a node without CPUs."""
    online = machine.read(f"{NODES}/online")
    if not online.text:
        yield unread("", online, "the list of NUMA nodes")
        return
    nodes = [
        node for node in sorted(cpu_set(online.text)) if machine.text(f"{NODES}/node{node}/cpulist")
    ]
    sizes = {
        node: _total_bytes(machine.text(f"{NODES}/node{node}/meminfo") or "") for node in nodes
    }
    known = {node: size for node, size in sizes.items() if size is not None}
    if not known or len(known) < len(sizes):
        first = next((node for node in sizes if node not in known), 0)
        yield unread(f"node {first}", machine.read(f"{NODES}/node{first}/meminfo"), "its memory")
        return
    largest = max(known.values())
    usual = largest - max(MAX_MISSING_SHARE * largest, MAX_RESERVED_BYTES)
    small = {node: size for node, size in known.items() if size < usual or not size}
    for node, size in small.items():
        evidence = Evidence(
            f"{NODES}/node{node}/meminfo",
            f"MemTotal {size >> 20} MiB",
            f"about {largest >> 20} MiB",
        )
        yield warned(
            f"node {node}",
            f"it has {size >> 20} MiB of memory, the largest node {largest >> 20}",
            evidence,
            fix=filled(NUMA_NODES.fix, node=node),
        )
    if not small:
        evidence = Evidence(f"{NODES}/online", online.text)
        yield passed(
            "",
            f"{counted(len(sizes), 'NUMA node')}, the largest with {largest >> 30} GiB",
            evidence,
        )


def _total_bytes(text: str) -> int | None:
    match = re.search(r"MemTotal:\s+(\d+) kB", text)
    return int(match.group(1)) * 1024 if match else None


NUMA_POLICY = CheckRow(
    id="BW151",
    name="mem-numa-policy",
    layer=Layer.CPU,
    title="NUMA memory policy in containers",
    right="the container has the capability SYS_NICE, or no seccomp filter",
    why=(
        "Docker blocks the NUMA system calls without it. NCCL 2.24 to 2.26.4 then fails when it"
        " allocates shared memory with cuMem."
    ),
    fix="start the container with --cap-add SYS_NICE, or set NCCL_CUMEM_HOST_ENABLE=0",
    stays="with the start of the container",
    reads=(STATUS,),
    sources=(
        "NCCL user guide, troubleshooting: cuMem host allocations",
        "Docker, seccomp security profiles",
    ),
)


@check(NUMA_POLICY)
def check_numa_policy(machine: Machine) -> Iterator[Finding]:
    """Whether this process has the capability SYS_NICE, or no seccomp filter."""
    if not machine.container:
        yield skipped("not a container")
        return
    reading = machine.read(STATUS)
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", reading.text or "", re.MULTILINE)
    if match is None:
        yield unread("", reading, "the capabilities of this process")
        return
    if (machine.environment or {}).get("NCCL_CUMEM_HOST_ENABLE") == "0":
        yield skipped("NCCL_CUMEM_HOST_ENABLE=0: NCCL needs no NUMA calls")
        return
    if re.search(r"^Seccomp:\s*0$", reading.text or "", re.MULTILINE):
        yield passed(
            "", "no seccomp filter blocks the NUMA system calls", Evidence(STATUS, "Seccomp 0")
        )
        return
    yield judged(
        right=bool(int(match.group(1), 16) & 1 << SYS_NICE),
        subject="",
        good="the container has SYS_NICE",
        bad=(
            "the container lacks SYS_NICE, so Docker's default seccomp profile blocks the NUMA"
            " system calls"
        ),
        evidence=(Evidence(STATUS, f"CapEff {match.group(1)}", f"bit {SYS_NICE}"),),
        fix=NUMA_POLICY.fix,
    )


HUGEPAGES = CheckRow(
    id="BW152",
    name="mem-hugepages",
    layer=Layer.CPU,
    title="huge pages on hosts with EFA, or whose kernel command line reserves them",
    right="some are reserved, and with EFA some are free",
    why=(
        "libfabric's EFA provider allocates its buffers from huge pages. EFA can register a "
        "limited number of pages, so larger pages cover more memory."
    ),
    fix="sysctl -w vm.nr_hugepages={pages}",
    stays="after reboot: lost; write it to a file in /etc/sysctl.d",
    reads=(MEMINFO, "/sys/bus/pci/devices/*/vendor", "/proc/cmdline"),
    sources=("libfabric issue 9739", "Linux, Documentation/admin-guide/mm/hugetlbpage.rst"),
)


@check(HUGEPAGES)
def check_hugepages(machine: Machine) -> Iterator[Finding]:
    """The huge pages that are free with EFA, or else those that were asked for."""
    devices = read_devices(machine)
    if not any(
        port.bdf in devices and devices[port.bdf].vendor == AMAZON for port in machine.ports
    ):
        yield _judge_reserved(machine)
        return
    reading = machine.read(MEMINFO)
    counts = named_counts((reading.text or "").replace(":", ""))
    total, free = counts.get("HugePages_Total"), counts.get("HugePages_Free")
    if total is None or free is None:
        yield unread("", reading, "the number of huge pages")
        return
    text = f"{free} of {total} huge pages are free"
    yield judged(
        right=free > 0,
        subject="",
        good=text,
        bad=text,
        evidence=(
            Evidence(MEMINFO, f"HugePages_Free {free}, HugePages_Total {total}", "more than 0"),
        ),
        fix=filled(HUGEPAGES.fix, pages=total + SPARE_HUGEPAGES),
    )


def _judge_reserved(machine: Machine) -> Finding:
    """Without EFA: whether the kernel reserved pages that its command line asks for."""
    asked = [word for word in machine.cmdline if re.fullmatch(r"hugepages=[1-9]\d*", word)]
    sizes = machine.names(HUGEPAGE_SIZES)
    counts = [number(machine.text(f"{HUGEPAGE_SIZES}/{size}/nr_hugepages")) for size in sizes]
    if not asked:
        return skipped("no EFA device, and the kernel command line asks for no huge pages")
    if not sizes or None in counts:
        return unread("", machine.read(HUGEPAGE_SIZES), "the number of huge pages")
    evidence = Evidence(HUGEPAGE_SIZES, f"{sum(filter(None, counts))} pages", " ".join(asked))
    return judged(
        right=any(counts),
        subject="",
        good="huge pages are reserved",
        bad=f"no huge page is reserved, though /proc/cmdline has {' '.join(asked)}",
        evidence=(evidence,),
        fix="free -g; drain the host and reboot it, as free memory is in too small pieces",
    )


FREE = CheckRow(
    id="BW153",
    name="mem-free",
    layer=Layer.CPU,
    title="available memory",
    right=f"{MIN_FREE_SHARE:.0%} of the memory or more",
    why=(
        "When memory is low the kernel frees pages before each allocation, which delays ranks. In"
        " the end it kills a process."
    ),
    fix="ps -eo rss,pid,user,comm --sort=-rss | head, and kill what an earlier job left behind",
    stays="until the next job leaves processes behind",
    reads=(MEMINFO,),
    sources=("proc(5): /proc/meminfo",),
)


@check(FREE)
def check_free(machine: Machine) -> Iterator[Finding]:
    """The available memory, compared with all memory."""
    total, available = (meminfo(machine, field) for field in ("MemTotal", "MemAvailable"))
    if not total or not available:
        yield unread("", machine.read(MEMINFO), "the available memory")
        return
    text = f"{available >> 30} of {total >> 30} GiB are available"
    evidence = Evidence(
        MEMINFO,
        f"MemAvailable {available >> 20} MiB",
        f"{int(MIN_FREE_SHARE * total) >> 20} MiB or more",
    )
    yield judged(
        right=available >= MIN_FREE_SHARE * total,
        subject="",
        good=text,
        bad=f"only {text}",
        evidence=(evidence,),
        fix=FREE.fix,
    )


ERRORS = CheckRow(
    id="BW154",
    name="mem-errors",
    layer=Layer.CPU,
    title="memory errors of the host since boot",
    right=(
        f"none uncorrectable, and at most {MAX_CORRECTABLE_PER_DAY} correctable a day "
        "between two readings (--watch-for, --since); with one reading, at most"
        f" {MAX_CORRECTABLE_PER_DAY} in all"
    ),
    why=(
        "An uncorrectable error kills the process that reads the data, or the host. Many"
        " correctable errors announce one."
    ),
    fix=(
        "grep . {base}/dimm*/dimm_*_count shows the module; drain the host, power it off and"
        " replace it"
    ),
    stays="depends on the hardware; the counts restart at a reboot",
    reads=(f"{CONTROLLERS}/mc*/ue_count", f"{CONTROLLERS}/mc*/ce_count"),
    sources=(
        "Linux, Documentation/admin-guide/RAS/main.rst: EDAC",
        "mcelog.conf(5): ce-error-threshold",
    ),
)


@check(ERRORS)
def check_errors(machine: Machine) -> Iterator[Finding]:
    """A finding for each memory controller that the kernel's EDAC drivers know."""
    controllers = [
        name for name in machine.names(CONTROLLERS) if name[:2] == "mc" and name[2:].isdecimal()
    ]
    if not controllers:
        if machine.hypervisor:
            yield skipped("a virtual machine does not see memory errors of its host")
        else:
            message = f"{CONTROLLERS} has no memory controller: no EDAC driver is loaded"
            yield not_offered("", message)
    for name in controllers:
        readings = [machine.read(f"{CONTROLLERS}/{name}/{kind}_count") for kind in ("ue", "ce")]
        uncorrectable, correctable = (number(reading.text) for reading in readings)
        if uncorrectable is None:
            yield unread(name, readings[0], "its count of errors")
        elif correctable is None:
            yield unread(name, readings[1], "its count of errors")
        else:
            yield _judge_errors(machine, name, uncorrectable, correctable)


def _judge_errors(machine: Machine, name: str, uncorrectable: int, correctable: int) -> Finding:
    """The finding on a memory controller with so many errors since boot."""
    folder, seconds = f"{CONTROLLERS}/{name}", interval_s(machine)
    fix = filled(ERRORS.fix, base=folder)
    of_uncorrectable = Evidence(f"{folder}/ue_count", str(uncorrectable), "0")
    if uncorrectable:
        message = f"{counted(uncorrectable, 'uncorrectable error')} since boot"
        return failed(name, message, of_uncorrectable, fix=fix, weight=uncorrectable)
    path = f"{folder}/ce_count"
    text = f"{counted(correctable, 'correctable error')} since boot"
    before = number(machine.earlier.text(path)) if machine.earlier else None
    if seconds and before is not None:
        rise = risen("ce_count", before, correctable) or 0
        text = f"{text}, {rise} of them in {span(seconds)}"
        bad = too_fast(rise, seconds, MAX_CORRECTABLE_PER_DAY * HOUR_S / DAY_S)
    else:
        rise, bad = correctable, correctable > MAX_CORRECTABLE_PER_DAY
        text += f"; {RATE_UNKNOWN}" if bad else ""
    of_correctable = Evidence(path, str(correctable), f"{MAX_CORRECTABLE_PER_DAY} or fewer a day")
    if bad:
        return warned(name, text, of_correctable, fix=fix, weight=rise)
    return passed(name, text, of_uncorrectable, of_correctable)
