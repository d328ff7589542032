"""GDRCopy, with which the CPU writes small messages to GPU memory."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

MODULE, DEVICE, VARIABLE = "gdrdrv", "/dev/gdrdrv", "NCCL_GDRCOPY_ENABLE"

ROW = CheckRow(
    id="BW111",
    name="gdrcopy",
    layer=Layer.KERNEL,
    title="GDRCopy",
    right=f"if its module {MODULE} is loaded or {VARIABLE} is 1, {DEVICE} exists",
    why="GDRCopy lowers the latency of small messages in UCX, and in NCCL if enabled. Without the device it is not used.",
    fix=f"modprobe {MODULE}; in a container add --device={DEVICE}",
    stays="permanent if GDRCopy's service (gdrcopy.service) is enabled; in a container, an option at its start",
    reads=("/proc/modules", "/dev", "environment"),
    sources=("GDRCopy, README",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The device, if the module or the variable needs it."""
    present = MODULE in machine.names("/dev")
    wanted = (machine.environment or {}).get(VARIABLE) == "1"
    if present:
        yield passed("", f"{DEVICE} exists", Evidence("/dev", MODULE))
    elif wanted or MODULE in machine.modules:
        reason = f"{VARIABLE}=1" if wanted else f"the module {MODULE} is loaded"
        yield warned("", f"{reason}, but there is no {DEVICE}", Evidence(DEVICE, "missing", "a device"), fix=ROW.fix)
    else:
        yield skipped("GDRCopy is not installed; it would lower the latency of small messages")


CHECK = Check(ROW, look)
