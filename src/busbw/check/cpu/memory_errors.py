"""Errors of the memory modules."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, unknown, warned
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.sizes import counted
from busbw.host.interfaces import number

BASE = "/sys/devices/system/edac/mc"

ROW = CheckRow(
    id="BW154",
    name="mem-errors",
    layer=Layer.CPU,
    title="errors of the host's memory since boot",
    right="none",
    why="An uncorrectable error stops the process that reads the data, or the host. Many correctable ones announce it.",
    fix="grep . {base}/dimm*/dimm_*_count, to see which module it is; replace it",
    stays="a matter of hardware; the counts start again at a reboot",
    reads=(f"{BASE}/mc*/ue_count", f"{BASE}/mc*/ce_count"),
    sources=("Linux, Documentation/admin-guide/RAS/main.rst: EDAC",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each memory controller that the kernel's EDAC drivers know."""
    controllers = [name for name in machine.names(BASE) if name[:2] == "mc" and name[2:].isdecimal()]
    counts = {name: [number(machine.text(f"{BASE}/{name}/{kind}_count")) for kind in ("ue", "ce")] for name in controllers}
    known = {name: (ue, ce) for name, (ue, ce) in counts.items() if ue is not None and ce is not None}
    if not known and machine.hypervisor:
        yield skipped("a virtual machine does not see errors of the host's memory")
        return
    if not known:
        yield unknown("", f"{BASE} has no memory controller: no EDAC driver is loaded")
        return
    for name, (ue, ce) in known.items():
        fix = ROW.fix.format(base=f"{BASE}/{name}")
        if ue:
            seen = Evidence(f"{BASE}/{name}/ue_count", str(ue), "0")
            yield failed(name, f"{counted(ue, 'uncorrectable error')} since boot", seen, fix=fix)
        elif ce:
            seen = Evidence(f"{BASE}/{name}/ce_count", str(ce), "0")
            yield warned(name, f"{counted(ce, 'correctable error')} since boot", seen, fix=fix)
    if not any(ue or ce for ue, ce in known.values()):
        first = next(iter(known))
        yield passed("", f"no memory error on {counted(len(known), 'controller')}", Evidence(f"{BASE}/{first}/ue_count", "0", "0"))


CHECK = Check(ROW, look)
