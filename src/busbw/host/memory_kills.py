"""Processes that the kernel has killed because memory ran out."""

import contextlib
import os
import re
from pathlib import Path

from busbw.core.kernel_rule import KMSG
from busbw.host.kernel_log import records

UNKNOWN = -1
VMSTAT = Path("/proc/vmstat")
_RECORDS = 200_000


def count() -> int:
    """How many since the host was started, of all control groups and users; UNKNOWN before Linux
    4.13.
    """
    with contextlib.suppress(OSError, ValueError):
        lines = VMSTAT.read_text(encoding="ascii").splitlines()
        return next(
            (int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), UNKNOWN
        )
    return UNKNOWN


def killed(pid: int) -> bool:
    """Whether the kernel log says that memory ran out and this process was killed; False if the
    log cannot be read.
    """
    said = re.compile(rf"(?:Out of memory|out of memory|oom).*Killed process {pid} ".encode())
    try:
        log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return any(said.search(record) for record in records(log, _RECORDS))
    except OSError:
        return False
    finally:
        os.close(log)
