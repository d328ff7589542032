"""GDRCopy, by which the CPU writes small data to GPU memory."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Evidence, Found, Layer

MODULE, DEVICE, VARIABLE = "gdrdrv", "/dev/gdrdrv", "NCCL_GDRCOPY_ENABLE"

ROW = CheckRow(
    id="BW111",
    name="gdrcopy",
    layer=Layer.KERNEL,
    title="GDRCopy",
    right=f"if its module {MODULE} is loaded or {VARIABLE} is 1, {DEVICE} is there",
    why="GDRCopy lowers the latency of small messages in UCX, and in NCCL where it is switched on. Without the device it is not used.",
    fix=f"modprobe {MODULE}; in a container add --device={DEVICE}",
    stays="survives a reboot where GDRCopy's service (gdrcopy.service) is enabled; in a container it is an option of its start",
    reads=("/proc/modules", "/dev", "environment"),
    sources=("GDRCopy, README",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The device, where module or variable ask for it."""
    present = MODULE in machine.names("/dev")
    wanted = (machine.environment or {}).get(VARIABLE) == "1"
    if present:
        yield passed("", f"{DEVICE} is there", Evidence("/dev", MODULE))
    elif wanted or MODULE in machine.modules:
        reason = f"{VARIABLE}=1" if wanted else f"the module {MODULE} is loaded"
        yield warned("", f"{reason}, but there is no {DEVICE}", Evidence(DEVICE, "not there", "a device"), fix=ROW.fix)
    else:
        yield skipped("GDRCopy is not installed; it would lower the latency of small messages")


CHECK = Check(ROW, look)
