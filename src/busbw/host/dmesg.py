"""The kernel log from its oldest record: what drivers said before busbw was started.

Only lines that a check judges, and those of GPUs, network devices and PCIe, are kept, so that a
snapshot holds nothing else. A flood of one message takes no place from others.
"""

import os
import re
import time
from collections import defaultdict, deque

import msgspec

from busbw.core.kernel_rule import KMSG
from busbw.core.kernel_rules import concerned
from busbw.host.kernel_log import logged_xids, records
from busbw.host.source import Source, Unavailable, once

CALL = "kmsg"
NO_RECORDS = "it has no records"  # some containers have /dev/null in its place
MOST_LINES = 1000  # of each Xid of each device, and of each other kind; the newest are kept
_READS = 1_000_000  # records of one reading, more than any log buffer holds
_DEVICES = re.compile(
    r"NVRM|nvidia|nouveau|mlx[45]|infiniband|ib_core|bnxt|irdma|\befa\b|pcieport|\bAER\b|PCIe",
    re.IGNORECASE,
)
# a GPU or network card that the kernel found
_FOUND = re.compile(r"\[(?:10de|15b3):|available PCIe bandwidth")
# it may name mlx5_core, but also hold keys
_COMMAND_LINE = re.compile(r"^(?:Kernel c|C|.*[Uu]nknown kernel c)ommand line")
_RESET = re.compile(r"[0-9a-f]:[0-9a-f]{2}\.[0-9a-f]: (?:resetting|reset done)", re.ASCII)
# "3,1234,5678901,-;text": priority, sequence number, microseconds of the boot clock, flags.
_RECORD = re.compile(r"\d+,(\d+),(\d+),[^;]*;([^\n]*)", re.ASCII)
# the kernel's form of bytes that are not printable ASCII
_ESCAPED = re.compile(r"(?:\\x[0-9a-f]{2})+")
OTHER, JUDGED, FOUND = "other", "judged", "found"


class Line(msgspec.Struct, frozen=True):
    """One line, logged at `at_s` seconds of the boot clock."""

    at_s: float
    text: str


class PastLog(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines that were kept, the oldest first, read at `now_s`.

    `begins_s` is the time of the oldest record of all.

    `reason` says why the log cannot be read.
    """

    now_s: float = 0.0
    begins_s: float = 0.0
    lines: tuple[Line, ...] = ()
    reason: str = ""

    def age_s(self, line: Line) -> float:
        """Seconds from the line to the reading."""
        return max(0.0, self.now_s - line.at_s)


@once
def read_past(source: Source) -> PastLog:
    """The log, live or recorded."""
    reading = source.call(CALL, _read)
    return (
        PastLog(reason=reading.reason)
        if reading.data is None
        else msgspec.json.decode(reading.data, type=PastLog)
    )


def parse(records: list[bytes], now_s: float) -> PastLog:
    """The log from records as /dev/kmsg gives them; a record that is none is left out."""
    found = [
        match for record in records if (match := _RECORD.match(record.decode("utf-8", "replace")))
    ]
    kept: defaultdict[str, deque[tuple[int, Line]]] = defaultdict(lambda: deque(maxlen=MOST_LINES))
    for place, one in enumerate(found):
        text = _printed(one[3])
        if kind := _kind(text):
            kept[kind].append((place, Line(int(one[2]) / 1e6, text)))
    lines = sorted(
        (entry for entries in kept.values() for entry in entries), key=lambda entry: entry[0]
    )
    begins_s = int(found[0][2]) / 1e6 if found else now_s
    return PastLog(now_s, begins_s, tuple(line for _, line in lines))


def _kind(text: str) -> str:
    """What a line is counted with, '' for one that is not kept."""
    if _COMMAND_LINE.match(text):
        return ""
    xids = logged_xids(text)
    if xids:
        return f"{xids[0].bus} {xids[0].number}"
    if _RESET.search(text) or concerned().search(text):
        return JUDGED
    if _FOUND.search(text):
        return FOUND
    return OTHER if _DEVICES.search(text) else ""


def _printed(text: str) -> str:
    """A record's text as the driver printed it, in one line: the kernel escapes line breaks and
    what is not ASCII.
    """
    if "\\x" not in text:
        return text
    plain = _ESCAPED.sub(
        lambda run: bytes.fromhex(run[0].replace("\\x", "")).decode("utf-8", "replace"), text
    )
    return " ".join("".join(sign if sign.isprintable() else " " for sign in plain).split())


def _read() -> str:
    try:
        descriptor = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        needs = (
            " (it needs root, or sysctl kernel.dmesg_restrict=0)"
            if isinstance(error, PermissionError)
            else ""
        )
        raise Unavailable(f"{KMSG}: {str(error.strerror).lower()}{needs}") from error
    try:
        read = list(records(descriptor, _READS))
    except OSError as error:
        raise Unavailable(f"{KMSG}: {str(error.strerror).lower()}") from error
    finally:
        os.close(descriptor)
    if not read:
        raise Unavailable(f"{KMSG}: {NO_RECORDS}, as in a container that hides it")
    return msgspec.json.encode(parse(read, time.monotonic())).decode()
