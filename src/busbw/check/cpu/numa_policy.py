"""Whether a container may set NUMA memory policies."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, judged, passed, skipped, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

PATH = "/proc/self/status"
SYS_NICE = 23  # linux/capability.h

ROW = CheckRow(
    id="BW151",
    name="mem-numa-policy",
    layer=Layer.CPU,
    title="NUMA memory policy in containers",
    right="the container has the capability SYS_NICE, or no seccomp filter",
    why="Docker blocks the NUMA system calls without it. NCCL 2.24 to 2.26.4 then fails when it allocates shared memory with cuMem.",
    fix="start the container with --cap-add SYS_NICE, or set NCCL_CUMEM_HOST_ENABLE=0",
    stays="with the start of the container",
    reads=(PATH,),
    sources=("NCCL user guide, troubleshooting: cuMem host allocations", "Docker, seccomp security profiles"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The effective capabilities of this process."""
    if not machine.container:
        yield skipped("not a container")
        return
    reading = machine.read(PATH)
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", reading.text or "", re.MULTILINE)
    if match is None:
        yield unread("", reading, "the capabilities of this process")
        return
    if (machine.environment or {}).get("NCCL_CUMEM_HOST_ENABLE") == "0":
        yield skipped("NCCL_CUMEM_HOST_ENABLE=0: NCCL needs no NUMA calls")
        return
    if re.search(r"^Seccomp:\s*0$", reading.text or "", re.MULTILINE):
        yield passed("", "no seccomp filter blocks the NUMA system calls", Evidence(PATH, "Seccomp 0"))
        return
    yield judged(
        right=bool(int(match.group(1), 16) & 1 << SYS_NICE),
        subject="",
        good="the container has SYS_NICE",
        bad="the container lacks SYS_NICE, so Docker's default seccomp profile blocks the NUMA system calls",
        evidence=(Evidence(PATH, f"CapEff {match.group(1)}", f"bit {SYS_NICE}"),),
        fix=ROW.fix,
    )


CHECK = Check(ROW, look)
