"""What the operating system answers that no file holds, as JSON: space of a file system, access
to devices, CPUs, the clock.
"""

import ctypes
import json
import os
from pathlib import Path

from busbw.host.source import Unavailable

_UNSYNCHRONIZED, _FAILED = 0x40, -1  # STA_UNSYNC of linux/timex.h


def space(path: str) -> str:
    """JSON of `free_space`; Unavailable if there is no such file system."""
    try:
        return json.dumps(free_space(path))
    except OSError as error:
        raise Unavailable(f"{path}: {str(error.strerror).lower()}") from error


def free_space(path: str) -> dict[str, int]:
    """The space of a file system that users have; OSError if it cannot be read.

    "total" and "free" are in bytes. "files" and "free_files" are inodes, 0 for a file system that
    does not count them.
    """
    stat = os.statvfs(path)
    size = {"total": stat.f_blocks * stat.f_frsize, "free": stat.f_bavail * stat.f_frsize}
    return size | {"files": stat.f_files, "free_files": stat.f_favail}


def accessible(folder: str) -> str:
    """JSON of whether this process may read and write each file of a directory, by name.

    {} if there is no such directory; Unavailable if it cannot be listed.
    """
    try:
        entries = sorted(Path(folder).iterdir())
    except FileNotFoundError:
        return "{}"
    except OSError as error:
        raise Unavailable(f"{folder}: {str(error.strerror).lower()}") from error
    return json.dumps({entry.name: os.access(entry, os.R_OK | os.W_OK) for entry in entries})


def allowed_cpus() -> str:
    """JSON list of the CPUs on which this process may run."""
    return json.dumps(sorted(os.sched_getaffinity(0)))


def allowed_cpu_list() -> str:
    """The CPUs on which this process may run as the kernel lists them, like 0-7,16.

    '' if /proc does not say.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        if line.startswith("Cpus_allowed_list:"):
            return line.partition(":")[2].strip()
    return ""


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2); the members after `status` are not read."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock() -> str:
    """JSON {"synchronized", "error_us"} of the system clock; Unavailable if the kernel refuses.

    The error is the one that the time service estimates.
    """
    state = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)) == _FAILED:
        raise Unavailable(f"adjtimex: {os.strerror(ctypes.get_errno()).lower()}")
    return json.dumps(
        {"synchronized": not state.status & _UNSYNCHRONIZED, "error_us": state.esterror}
    )
