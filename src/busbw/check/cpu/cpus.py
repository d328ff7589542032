"""CPUs: their frequency, their clock, their interrupts, and which of them are in use."""

from collections import Counter
from collections.abc import Iterator

from busbw.check.base import broken, check, judged, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine, Part, nics
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.cpu import count_list
from busbw.host.settings import cpu_set

CPUS = "/sys/devices/system/cpu"
BEST_GOVERNOR = "performance"
# Drivers in which the CPU chooses, guided by a preference.
SELF_DRIVING = ("intel_pstate", "amd-pstate", "amd-pstate-epp")

GOVERNOR = CheckRow(
    id="BW145",
    name="cpu-governor",
    layer=Layer.CPU,
    title="CPU frequency governor",
    right=(
        f"{BEST_GOVERNOR}; with intel_pstate or amd-pstate also the energy preference"
        f" {BEST_GOVERNOR}"
    ),
    why=(
        "A low clock delays each small message. perftest then warns of conflicting CPU frequency"
        " values."
    ),
    fix=f"cpupower frequency-set -g {BEST_GOVERNOR}",
    stays=(
        "after reboot: lost; enable cpupower's service, or tuned with the profile"
        f" latency-performance (governor={BEST_GOVERNOR})"
    ),
    reads=(
        f"{CPUS}/cpu*/cpufreq/scaling_governor",
        "scaling_driver",
        "energy_performance_preference",
    ),
    sources=("Linux, Documentation/admin-guide/pm/cpufreq.rst",),
)
CLOCKSOURCES = "/sys/devices/system/clocksource/clocksource0"
CURRENT_CLOCKSOURCE = f"{CLOCKSOURCES}/current_clocksource"
AVAILABLE_CLOCKSOURCES = f"{CLOCKSOURCES}/available_clocksource"
# Clock sources that are read from a device, or are no finer than a tick.
SLOW_CLOCKSOURCES = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
NODES = "/sys/devices/system/node"
SMT_OFF = ("off", "forceoff")
ISOLATED_FILE = "/sys/devices/system/cpu/isolated"


@check(GOVERNOR)
def check_governor(machine: Machine) -> Iterator[Finding]:
    online = machine.read(f"{CPUS}/online")
    paths = [f"{CPUS}/cpu{cpu}/cpufreq" for cpu in sorted(cpu_set(online.text or ""))]
    readings = {path: machine.read(f"{path}/scaling_governor") for path in paths}
    failing = [reading for reading in (online, *readings.values()) if broken(reading)]
    if failing:
        yield unread("", failing[0], "the governors")
        return
    governors = {path: reading.text for path, reading in readings.items() if reading.text}
    if not governors:
        yield skipped(
            "the kernel does not control the CPU frequency here; the BIOS or a hypervisor does"
        )
        return
    slow = {
        path: governor
        for path, governor in governors.items()
        if governor != BEST_GOVERNOR and not _prefers_performance(machine, path)
    }
    if not slow:
        first, governor = next(iter(governors.items()))
        evidence = Evidence(f"{first}/scaling_governor", governor, BEST_GOVERNOR)
        message = f"the governors of {counted(len(governors), 'CPU')} prefer performance"
        yield passed("", message, evidence)
        return
    kinds = ", ".join(
        f"{governor} on {count}" for governor, count in Counter(slow.values()).most_common()
    )
    first = next(iter(slow))
    yield warned(
        "",
        f"of {len(governors)} CPUs: {kinds}",
        Evidence(f"{first}/scaling_governor", slow[first], BEST_GOVERNOR),
        fix=GOVERNOR.fix,
    )


def _prefers_performance(machine: Machine, path: str) -> bool:
    drives_itself = (machine.text(f"{path}/scaling_driver") or "") in SELF_DRIVING
    return drives_itself and machine.text(f"{path}/energy_performance_preference") == BEST_GOVERNOR


CLOCKSOURCE = CheckRow(
    id="BW146",
    name="cpu-clocksource",
    layer=Layer.CPU,
    title="clock source",
    right="tsc, or its equivalent on the architecture or hypervisor",
    why=(
        "Reading hpet or acpi_pm takes a system call and a device access: about a microsecond or"
        " more for each reading."
    ),
    fix=f"echo tsc > {CURRENT_CLOCKSOURCE}",
    stays=(
        "after reboot: lost; if the kernel rejected tsc, dmesg says why (often the BIOS or another"
        " CPU's clock)"
    ),
    reads=(CURRENT_CLOCKSOURCE, AVAILABLE_CLOCKSOURCES),
    sources=("Linux, Documentation/timers/timekeeping.rst",),
)


@check(CLOCKSOURCE)
def check_clocksource(machine: Machine) -> Iterator[Finding]:
    reading = machine.read(CURRENT_CLOCKSOURCE)
    if not reading.text:
        yield unread("", reading, "the clock source")
        return
    available = (machine.text(AVAILABLE_CLOCKSOURCES) or "").split()
    others = [name for name in available if name not in SLOW_CLOCKSOURCES]
    text = f"the clock source is {reading.text}"
    expected = "tsc"
    fix = "to see why the kernel rejected tsc: dmesg | grep -i -e tsc -e clocksource"
    if others:
        expected = others[0]
        fix = filled(f"echo {{name}} > {CURRENT_CLOCKSOURCE}", name=expected)
    yield judged(
        right=reading.text not in SLOW_CLOCKSOURCES,
        subject="",
        good=text,
        bad=text,
        evidence=(Evidence(CURRENT_CLOCKSOURCE, reading.text, expected),),
        fix=fix,
    )


IRQ_AFFINITY = CheckRow(
    id="BW147",
    name="cpu-irq-affinity",
    layer=Layer.CPU,
    title="CPUs that handle interrupts of network controllers",
    right="most are on the NUMA node of the NIC",
    why=(
        "Otherwise TCP packets are processed on the other socket, and their data crosses the link"
        " between the sockets."
    ),
    fix="echo {cpus} | tee {files}",
    stays=(
        "after reboot: lost, and irqbalance may change it; run it from a systemd unit, and exclude"
        " the interrupts from irqbalance"
    ),
    reads=(
        "/sys/bus/pci/devices/*/msi_irqs",
        "/proc/irq/*/effective_affinity_list",
        f"{NODES}/node*/cpulist",
    ),
    sources=("Linux, Documentation/core-api/irq/irq-affinity.rst",),
)


@check(IRQ_AFFINITY)
def check_irq_affinity(machine: Machine) -> Iterator[Finding]:
    """A finding for each network controller with interrupts of its own."""
    nodes = machine.read(f"{NODES}/online")
    if broken(nodes):
        yield unread("", nodes, "the list of NUMA nodes")
        return
    if count_list(nodes.text or "") <= 1:
        yield skipped("the machine shows no more than one NUMA node")
        return
    without = True
    for part in nics(machine):
        numbers = machine.names(f"{part.path}/msi_irqs")
        if numbers:
            without = False
            yield _judge_interrupts(machine, part, numbers)
    if without:
        yield skipped("no network controller with interrupts of its own")


def _judge_interrupts(machine: Machine, part: Part, numbers: tuple[str, ...]) -> Finding:
    node = machine.text(f"{part.path}/numa_node") or ""
    cpus_of_node = machine.text(f"{NODES}/node{node}/cpulist") or ""
    local = cpu_set(cpus_of_node)
    by_path = dict(_cpus_of_interrupt(machine, number) for number in numbers)
    handled = {path: cpus for path, cpus in by_path.items() if cpus}
    if not local:
        return not_offered(part.name, "its NUMA node is unknown")
    if not handled:
        return not_offered(part.name, "the CPUs of its interrupts cannot be read")
    far = [path for path, cpus in handled.items() if not cpus & local]
    text = f"{len(far)} of {len(handled)} interrupts are handled on another NUMA node"
    shown = far[0] if far else next(iter(handled))
    expected = f"CPUs {cpus_of_node} (node {node})"
    settable = [path.replace("effective_affinity_list", "smp_affinity_list") for path in far]
    return judged(
        right=2 * len(far) <= len(handled),
        subject=part.name,
        good=text,
        bad=text,
        evidence=(Evidence(shown, machine.text(shown) or "", expected),),
        fix=filled(IRQ_AFFINITY.fix, cpus=cpus_of_node, files=settable),
    )


def _cpus_of_interrupt(machine: Machine, number: str) -> tuple[str, set[int]]:
    """The file and CPUs of an interrupt. Kernels before 4.15 have only the requested CPUs."""
    path = f"/proc/irq/{number}/effective_affinity_list"
    if machine.text(path):
        return path, cpu_set(machine.text(path) or "")
    path = f"/proc/irq/{number}/smp_affinity_list"
    return path, cpu_set(machine.text(path) or "")


ONLINE = CheckRow(
    id="BW148",
    name="cpu-online",
    layer=Layer.CPU,
    title="online CPUs",
    right="all, or one thread of each core if SMT is off",
    why=(
        "Ranks have fewer CPUs, and a NUMA node may have none. The threads of NCCL and the data"
        " loaders then share what is left."
    ),
    fix="for c in {cpus}; do echo 1 > /sys/devices/system/cpu/cpu$c/online; done",
    stays=(
        "a reboot brings CPUs online, unless the kernel command line limits them (maxcpus=,"
        " nr_cpus=)"
    ),
    reads=(f"{CPUS}/online", f"{CPUS}/present", f"{CPUS}/smt/control"),
    sources=("Linux, Documentation/admin-guide/cputopology.rst",),
)


@check(ONLINE)
def check_online(machine: Machine) -> Iterator[Finding]:
    """The present CPUs, compared with those online."""
    readings = [machine.read(f"{CPUS}/{name}") for name in ("online", "present")]
    unreadable = [reading for reading in readings if not reading.text]
    if unreadable:
        yield unread("", unreadable[0], "the list of CPUs")
        return
    online_text, present_text = (reading.text or "" for reading in readings)
    online, present = cpu_set(online_text), cpu_set(present_text)
    smt = machine.text(f"{CPUS}/smt/control") or "not known"
    missing = sorted(present - online)
    yield judged(
        right=not missing or smt in SMT_OFF,
        subject="",
        good=f"{len(online)} of {len(present)} CPUs are online, SMT is {smt}",
        bad=f"{len(missing)} of {len(present)} CPUs are not online",
        evidence=(Evidence(f"{CPUS}/online", online_text, present_text),),
        fix=filled(ONLINE.fix, cpus=[str(cpu) for cpu in missing]),
    )


ISOLATED = CheckRow(
    id="BW149",
    name="cpu-isolated",
    layer=Layer.CPU,
    title="isolated CPUs",
    right="none",
    why=(
        "The scheduler does not spread threads over isolated CPUs. All threads of a rank that is"
        " bound to them can end up on one CPU."
    ),
    fix=(
        "remove isolcpus= from GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub (on RHEL:"
        " grubby --update-kernel=ALL --remove-args=isolcpus); then drain the host and reboot it"
    ),
    stays="permanent once the boot loader has it",
    reads=(ISOLATED_FILE, "/proc/cmdline"),
    sources=("Linux, Documentation/admin-guide/kernel-parameters.txt: isolcpus=",),
)


@check(ISOLATED)
def check_isolated(machine: Machine) -> Iterator[Finding]:
    """The CPUs that the kernel lists as isolated."""
    reading = machine.read(ISOLATED_FILE)
    if reading.text is None:
        yield unread("", reading, "the list of isolated CPUs")
        return
    options = [word for word in machine.cmdline if word.startswith("isolcpus=")]
    yield judged(
        right=not reading.text,
        subject="",
        good="no CPU is isolated",
        bad=f"CPUs {reading.text} are isolated",
        evidence=(
            Evidence(ISOLATED_FILE, reading.text or "none", "none"),
            Evidence("/proc/cmdline", options[0] if options else "no isolcpus="),
        ),
        fix=ISOLATED.fix,
    )
