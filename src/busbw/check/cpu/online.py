"""CPUs that are offline."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.settings import cpu_set

BASE = "/sys/devices/system/cpu"
SMT_OFF = ("off", "forceoff")

ROW = CheckRow(
    id="BW148",
    name="cpu-online",
    layer=Layer.CPU,
    title="online CPUs",
    right="all, or one thread of each core if SMT is off",
    why="Ranks have fewer CPUs, and a NUMA node may have none. The threads of NCCL and the data loaders then share what is left.",
    fix="for c in {cpus}; do echo 1 > /sys/devices/system/cpu/cpu$c/online; done",
    stays="a reboot brings CPUs online, unless the kernel command line limits them (maxcpus=, nr_cpus=)",
    reads=(f"{BASE}/online", f"{BASE}/present", f"{BASE}/smt/control"),
    sources=("Linux, Documentation/admin-guide/cputopology.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Present CPUs that are not online."""
    readings = {name: machine.read(f"{BASE}/{name}") for name in ("online", "present")}
    unreadable = next((reading for reading in readings.values() if not reading.text), None)
    if unreadable is not None:
        yield unread("", unreadable, "the list of CPUs")
        return
    online, present = (cpu_set(reading.text or "") for reading in readings.values())
    smt = machine.text(f"{BASE}/smt/control") or "not known"
    missing = sorted(present - online)
    yield judged(
        right=not missing or smt in SMT_OFF,
        subject="",
        good=f"{len(online)} of {len(present)} CPUs are online, SMT is {smt}",
        bad=f"{len(missing)} of {len(present)} CPUs are not online",
        evidence=(Evidence(f"{BASE}/online", readings["online"].text or "", readings["present"].text or ""),),
        fix=filled(ROW.fix, cpus=[str(cpu) for cpu in missing]),
    )


CHECK = Check(ROW, look)
