"""Errors of GPUs and NVSwitches that the NVIDIA driver writes to the kernel log, from the moment the log is opened."""

import os
import re
from collections import Counter
from contextlib import ExitStack

from busbw.core.vitals import XidEvent
from busbw.host.gpu import short_bus
from busbw.host.source import Live, Source

KMSG = "/dev/kmsg"
_RECORD_BYTES = 8192  # the kernel's longest record (Documentation/ABI/testing/dev-kmsg)
_RECORDS = 4096  # of one reading, so that a flooded log does not delay it
# "NVRM: Xid (PCI:0000:1b:00): 79, pid=..." and "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 22013, Fatal, ...". Lines such as
# "SXid (PCI:0000:c1:00.0): 22013, Severity 1 Engine instance 00 ..." and "..., Data {...}" tell more of the SXid before them.
_XID = re.compile(r"(NVRM: Xid|nvidia-nvswitch\d+: SXid) \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?!\d|, (?:Severity \d|Data \{))", re.ASCII)


def xids(text: str) -> list[XidEvent]:
    """The errors in lines of the kernel log; repeated errors become one event with a count."""
    seen = Counter((short_bus(bus), int(code), "SXid" in kind) for kind, bus, code in _XID.findall(text))
    return [XidEvent(bus, code, times, switch) for (bus, code, switch), times in seen.items()]


class KernelLog:
    """The log from now on. `reason` says why it cannot be read."""

    def __init__(self, source: Source, opened: ExitStack) -> None:
        self.reason = ""
        self._descriptor: int | None = None
        if not isinstance(source, Live):
            self.reason = f"{KMSG}: a recording cannot be followed"
            return
        try:
            self._descriptor = os.open(source.at(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            opened.callback(os.close, self._descriptor)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self._descriptor, self.reason = None, f"{KMSG}: {os.strerror(error.errno or 0).lower()}"

    def read(self) -> list[XidEvent]:
        """Errors logged since the last call; none if the log cannot be read (see `reason`)."""
        if self._descriptor is None:
            return []
        return xids(b"".join(self._records(self._descriptor)).decode("utf-8", "replace"))

    def _records(self, descriptor: int) -> list[bytes]:
        records: list[bytes] = []
        while len(records) < _RECORDS:
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before they were read: continue with the oldest one left
                continue
            except OSError as error:
                self.reason = f"{KMSG}: {os.strerror(error.errno or 0).lower()}"
                break
            if not record:
                break
            records.append(record)
        return records
