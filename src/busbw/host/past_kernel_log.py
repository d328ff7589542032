"""The kernel log from its oldest record: what drivers said before busbw was started.

Only lines of GPUs, network devices and PCI are kept, so that a snapshot holds nothing else.
"""

import os
import re
import time
from collections import deque

import msgspec

from busbw.host.kernel_log import KMSG
from busbw.host.source import Source, Unavailable

CALL = "kmsg"
MOST_LINES = 5000  # the newest are kept
_READS = 1_000_000  # records of one reading, more than any log buffer holds
_RECORD_BYTES = 8192  # the kernel's longest record (Documentation/ABI/testing/dev-kmsg)
_KEPT = re.compile(
    r"NVRM|nvidia|nouveau|mlx[45]|infiniband|ib_core|bnxt|irdma|\befa\b|pcieport|\bAER\b|PCIe|\[(?:10de|15b3):", re.IGNORECASE
)
# "3,1234,5678901,-;text": priority, sequence number, microseconds of the boot clock, flags.
_RECORD = re.compile(r"\d+,(\d+),(\d+),[^;]*;([^\n]*)", re.ASCII)


class Line(msgspec.Struct, frozen=True):
    """One line, logged at `at_s` seconds of the boot clock."""

    at_s: float
    text: str


class PastLog(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines that were kept, the oldest first, read at `now_s`. `begins_s` is the time of the oldest record of all.

    `reason` says why the log cannot be read.
    """

    now_s: float = 0.0
    begins_s: float = 0.0
    lines: tuple[Line, ...] = ()
    reason: str = ""

    def age_s(self, line: Line) -> float:
        """Seconds from the line to the reading."""
        return max(0.0, self.now_s - line.at_s)


def read_past(source: Source) -> PastLog:
    """The log, live or recorded."""
    reading = source.call(CALL, _read)
    return PastLog(reason=reading.reason) if reading.data is None else msgspec.json.decode(reading.data, type=PastLog)


def parse(records: list[bytes], now_s: float) -> PastLog:
    """The log from records as /dev/kmsg gives them; a record that is none is left out."""
    found = [match for record in records if (match := _RECORD.match(record.decode("utf-8", "replace")))]
    lines = deque((Line(int(one[2]) / 1e6, one[3]) for one in found if _KEPT.search(one[3])), maxlen=MOST_LINES)
    return PastLog(now_s, int(found[0][2]) / 1e6 if found else now_s, tuple(lines))


def _read() -> str:
    try:
        descriptor = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        needs = " (it needs root, or sysctl kernel.dmesg_restrict=0)" if isinstance(error, PermissionError) else ""
        raise Unavailable(f"{KMSG}: {os.strerror(error.errno or 0).lower()}{needs}") from error
    try:
        records = _records(descriptor)
    except OSError as error:
        raise Unavailable(f"{KMSG}: {os.strerror(error.errno or 0).lower()}") from error
    finally:
        os.close(descriptor)
    return msgspec.json.encode(parse(records, time.monotonic())).decode()


def _records(descriptor: int) -> list[bytes]:
    """All records there are, without waiting for more."""
    records: list[bytes] = []
    for _ in range(_READS):
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            break
        except BrokenPipeError:  # records were overwritten before they were read: continue with the oldest one left
            continue
        if not record:
            break
        records.append(record)
    return records
