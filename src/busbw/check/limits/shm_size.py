"""The size of /dev/shm."""

import json
from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, unread, warned
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.mounts import read_space

PATH = "/dev/shm"
LEAST, TOO_SMALL = 1 << 30, 64 << 20  # the second is Docker's default
LEFT_OVER = "nccl-"

ROW = CheckRow(
    id="BW134",
    name="shm-size",
    layer=Layer.LIMITS,
    title=f"size of {PATH}",
    right="1 GiB or more are free",
    why="Ranks on a host exchange data there. If it is full, NCCL fails with: failed to extend /dev/shm/nccl-..., or the job ends with a "
    "bus error.",
    fix="mount -o remount,size=50% /dev/shm; for containers --shm-size=1g or --ipc=host",
    stays="in /etc/fstab (tmpfs /dev/shm tmpfs size=...); for containers, an option at their start",
    reads=(f"statvfs({PATH})", PATH),
    sources=("NCCL user guide, troubleshooting: shared memory",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The free space, which files left by ended jobs reduce."""
    reading = read_space(machine, PATH)
    if reading.text is None:
        yield unread("", reading, f"the size of {PATH}")
        return
    size = json.loads(reading.text)
    evidence = Evidence(f"statvfs({PATH})", f"{_mib(size['free'])} free of {_mib(size['total'])}", "1024 MiB or more")
    text = f"{_mib(size['free'])} of {_mib(size['total'])} are free in {PATH}"
    report = failed if size["free"] <= TOO_SMALL else warned
    left = [name for name in machine.names(PATH) if name.startswith(LEFT_OVER)]
    if size["free"] >= LEAST:
        yield passed("", text, evidence)
    elif size["total"] >= LEAST:
        fix = f"drain the host; then rm {PATH}/{LEFT_OVER}*" if left else f"ls -l {PATH}; remove what ended jobs left"
        yield report("", text, evidence, fix=fix)
    elif machine.container:
        yield report(
            "",
            text,
            evidence,
            fix="start the container with --shm-size=1g or --ipc=host; in Kubernetes mount an emptyDir with medium: Memory",
        )
    else:
        yield report("", text, evidence, fix=f"mount -o remount,size=50% {PATH}")


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


CHECK = Check(ROW, look)
