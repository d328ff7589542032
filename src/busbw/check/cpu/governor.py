"""The frequency governor of the CPUs."""

from collections import Counter
from collections.abc import Iterator

from busbw.check.base import Check, broken, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.settings import cpu_set

CPUS = "/sys/devices/system/cpu"
BEST = "performance"
SELF = ("intel_pstate", "amd-pstate", "amd-pstate-epp")  # drivers in which the CPU chooses, guided by a preference

ROW = CheckRow(
    id="BW145",
    name="cpu-governor",
    layer=Layer.CPU,
    title="CPU frequency governor",
    right=f"{BEST}; with intel_pstate or amd-pstate also the energy preference {BEST}",
    why="A low clock delays each small message. perftest then warns of conflicting CPU frequency values.",
    fix=f"cpupower frequency-set -g {BEST}",
    stays=f"lost at the next reboot; enable cpupower's service, or tuned with the profile latency-performance (governor={BEST})",
    reads=(f"{CPUS}/cpu*/cpufreq/scaling_governor", "scaling_driver", "energy_performance_preference"),
    sources=("Linux, Documentation/admin-guide/pm/cpufreq.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """All online CPUs."""
    online = machine.read(f"{CPUS}/online")
    paths = [f"{CPUS}/cpu{cpu}/cpufreq" for cpu in sorted(cpu_set(online.text or ""))]
    governors = {path: text for path in paths if (text := machine.text(f"{path}/scaling_governor"))}
    silent = [reading for reading in (online, *(machine.read(f"{path}/scaling_governor") for path in paths)) if broken(reading)]
    if silent:
        yield unread("", silent[0], "the governors")
        return
    if not governors:
        yield skipped("the kernel does not control the CPU frequency here; the BIOS or a hypervisor does")
        return
    slow = {path: governor for path, governor in governors.items() if governor != BEST and not _preferred(machine, path)}
    if not slow:
        seen = Evidence(f"{next(iter(governors))}/scaling_governor", next(iter(governors.values())), BEST)
        yield passed("", f"the governors of {counted(len(governors), 'CPU')} prefer performance", seen)
        return
    kinds = ", ".join(f"{governor} on {count}" for governor, count in Counter(slow.values()).most_common())
    first = next(iter(slow))
    yield warned("", f"of {len(governors)} CPUs: {kinds}", Evidence(f"{first}/scaling_governor", slow[first], BEST), fix=ROW.fix)


def _preferred(machine: Machine, path: str) -> bool:
    drives_itself = (machine.text(f"{path}/scaling_driver") or "") in SELF
    return drives_itself and machine.text(f"{path}/energy_performance_preference") == BEST


CHECK = Check(ROW, look)
