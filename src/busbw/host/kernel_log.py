"""Errors of GPUs and NVSwitches that the NVIDIA driver writes to the kernel log, and processes that
the kernel has killed because memory ran out.

`KernelLog` follows the log from the moment it is opened; `kernel_log_past` reads what was logged
before.
"""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from busbw.core.kernel_rule import KMSG
from busbw.core.telemetry import XidEvent
from busbw.host.gpu import short_bus
from busbw.host.source import LiveMachine, Source

_RECORD_BYTES = 8192  # the kernel's longest record (Documentation/ABI/testing/dev-kmsg)
_RECORDS = 4096  # of one reading, so that a flooded log does not delay it

# "NVRM: Xid (PCI:0000:1b:00): 79, pid=..." of a GPU, "(PCI:0000:01:00 GPU-I:05 GPU-CI:01)" of a MIG
# instance, "(0000:03:00)" of drivers before 2013, and "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0):
# 22013, Fatal, ..." (open-gpu-kernel-modules, kernel_rc.c and common_nvswitch.h). Lines such as
# "SXid (PCI:0000:c1:00.0): 22013, Severity 1 Engine instance 00 ..." and "..., Data {...}" tell
# more of the SXid before them, which a log that is cut or filtered may lack.
_XID = re.compile(
    r"(NVRM: Xid|nvidia-nvswitch\d+: SXid) \((?:PCI:)?([0-9a-fA-F:.]+)((?: GPU-C?I:\d+)*)\): (\d+)"
    r"(?!\d)([^\n]*)",
    re.ASCII,
)
_DETAILS = re.compile(r", (?:Severity \d|Data \{|SOE HALT data)", re.ASCII)
UNKNOWN = -1
VMSTAT = Path("/proc/vmstat")
PID_NAMESPACE = Path("/proc/self/ns/pid")
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO (Linux, include/linux/proc_ns.h)
_KILL_RECORDS = 200_000


@dataclass(frozen=True, slots=True)
class LoggedXid:
    """One line of the log with an Xid of a GPU, or an SXid of an NVSwitch (`switch`).

    `bus` is the device's address without its function. `instance` is the MIG instance (`GPU-I:05`,
    '' if none). `text` is what follows the number.
    """

    bus: str
    number: int
    switch: bool
    instance: str
    text: str

    @property
    def is_detail(self) -> bool:
        """Whether the line only tells more of an SXid that another line reports."""
        return self.switch and _DETAILS.match(self.text) is not None


def logged_xids(text: str) -> list[LoggedXid]:
    """The errors in lines of the kernel log, one for each line that has an error.

    A time, a host, `kernel:` or the fields of /dev/kmsg may stand before an error.
    """
    return [
        LoggedXid(short_bus(bus), int(code), "SXid" in kind, instance.strip(), details)
        for kind, bus, instance, code, details in _XID.findall(text)
    ]


def xids(text: str) -> list[XidEvent]:
    """The errors in lines of the kernel log; repeated errors become one event with a count."""
    logged = [xid for xid in logged_xids(text) if not xid.is_detail]
    times_logged = Counter((xid.bus, xid.number, xid.switch) for xid in logged)
    return [
        XidEvent(bus, code, times, switch) for (bus, code, switch), times in times_logged.items()
    ]


class KernelLog:
    """The log from now on. `reason` says why it cannot be read."""

    def __init__(self, source: Source, opened: ExitStack) -> None:
        self.reason = ""
        self._descriptor: int | None = None
        if not isinstance(source, LiveMachine):
            self.reason = f"{KMSG}: a recording cannot be followed"
            return
        try:
            self._descriptor = os.open(source.at(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            opened.callback(os.close, self._descriptor)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self._descriptor, self.reason = None, f"{KMSG}: {str(error.strerror).lower()}"

    def read(self) -> list[XidEvent]:
        """Errors logged since the last call; none if the log cannot be read (see `reason`)."""
        if self._descriptor is None:
            return []
        return xids(b"".join(self._records(self._descriptor)).decode("utf-8", "replace"))

    def _records(self, descriptor: int) -> Iterator[bytes]:
        try:
            yield from records(descriptor, _RECORDS)
        except OSError as error:
            self.reason = f"{KMSG}: {str(error.strerror).lower()}"


def records(descriptor: int, limit: int) -> Iterator[bytes]:
    """Up to `limit` records that /dev/kmsg, opened without blocking, has now.

    OSError if it cannot be read.
    """
    for _ in range(limit):
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # Records were overwritten before they were read: continue with the oldest one left.
            continue
        if not record:
            return
        yield record


def count() -> int:
    """How many processes were killed for memory since the host was started.

    All control groups and users count. UNKNOWN before Linux 4.13.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in VMSTAT.read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return UNKNOWN


def killed(pid: int) -> bool | None:
    """Whether the kernel log says that this process was killed because memory ran out.

    None if that is not known: the log cannot be read, or has other numbers for processes, as it has
    for those of a container.
    """
    message = re.compile(rf"(?:Out of memory|out of memory|oom).*Killed process {pid} ".encode())
    try:
        if str(PID_NAMESPACE.readlink()) != _FIRST_PID_NAMESPACE:
            return None
        log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return any(message.search(record) for record in records(log, _KILL_RECORDS))
    except OSError:
        return None
    finally:
        os.close(log)
