"""Errors of GPUs and NVSwitches that the NVIDIA driver writes to the kernel log, from the moment
the log is opened.

The kernel log from its oldest record: what drivers said before busbw was started.

Only lines that a check judges, and those of GPUs, network devices and PCIe, are kept, so that a
snapshot holds nothing else. A flood of one message takes no place from others.

Processes that the kernel has killed because memory ran out.

NVIDIA's GPUs and network cards that the kernel found on PCI since it started, by its log.

A card that falls off the bus and is removed leaves no trace in sysfs, but these lines.
"""

import contextlib
import os
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.core.kernel_rule import KMSG
from busbw.core.kernel_rules import concerned
from busbw.core.telemetry import XidEvent
from busbw.host.gpu import short_bus
from busbw.host.source import Live, Source, Unavailable, once

_RECORD_BYTES = 8192  # the kernel's longest record (Documentation/ABI/testing/dev-kmsg)
_RECORDS = 4096  # of one reading, so that a flooded log does not delay it
# "NVRM: Xid (PCI:0000:1b:00): 79, pid=..." of a GPU, "(PCI:0000:01:00 GPU-I:05 GPU-CI:01)" of a MIG
# instance, "(0000:03:00)" of drivers before 2013, and "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0):
# 22013, Fatal, ..." (open-gpu-kernel-modules, kernel_rc.c and common_nvswitch.h). Lines such as
# "SXid (PCI:0000:c1:00.0): 22013, Severity 1 Engine instance 00 ..." and "..., Data {...}" tell
# more of the SXid before them.
_XID = re.compile(
    r"(NVRM: Xid|nvidia-nvswitch\d+: SXid) \((?:PCI:)?([0-9a-fA-F:.]+)((?: GPU-C?I:\d+)*)\): (\d+)"
    r"(?!\d|, (?:Severity \d|Data \{|SOE HALT data))([^\n]*)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class LoggedXid:
    """An Xid of a GPU, or an SXid of an NVSwitch (`switch`), in one line.

    `bus` is the device's address without its function, `instance` the MIG instance (`GPU-I:05`, ''
    if none), `text` what follows the number.
    """

    bus: str
    number: int
    switch: bool
    instance: str
    text: str


def logged_xids(text: str) -> list[LoggedXid]:
    """The errors in lines of the kernel log, whatever stands before them: a time, a host,
    `kernel:`, or fields of /dev/kmsg.
    """
    return [
        LoggedXid(short_bus(bus), int(code), "SXid" in kind, instance.strip(), rest)
        for kind, bus, instance, code, rest in _XID.findall(text)
    ]


def xids(text: str) -> list[XidEvent]:
    """The errors in lines of the kernel log; repeated errors become one event with a count."""
    seen = Counter((xid.bus, xid.number, xid.switch) for xid in logged_xids(text))
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


def records(descriptor: int, most: int) -> Iterator[bytes]:
    """Up to `most` records of /dev/kmsg, opened without blocking, that are there now.

    OSError if it cannot be read.
    """
    for _ in range(most):
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return
        except (
            BrokenPipeError
        ):  # records were overwritten before they were read: continue with the oldest one left
            continue
        if not record:
            return
        yield record


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


UNKNOWN = -1
VMSTAT = Path("/proc/vmstat")
_KILL_RECORDS = 200_000


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
        return any(said.search(record) for record in records(log, _KILL_RECORDS))
    except OSError:
        return False
    finally:
        os.close(log)


_BDF = r"([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
# "pci 0000:1b:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint" (Linux drivers/pci/probe.c)
_GPU = re.compile(rf"\bpci {_BDF}: \[10de:[0-9a-f]{{4}}\] type 00 class 0x03|\bnvidia {_BDF}: ")
_CARD = re.compile(rf"\bpci {_BDF}: \[15b3:([0-9a-f]{{4}})\] type 00 class 0x02")
# "mlx5_core 0000:1c:00.0: 252.048 Gb/s available PCIe bandwidth (...)": mlx5 prints it for physical
# functions only.
_PHYSICAL = re.compile(rf"\bmlx5_core {_BDF}: .*available PCIe bandwidth")
# Virtual functions are removed on purpose. Linux drivers/net/ethernet/mellanox/mlx5/core/main.c
# marks these as such.
_VIRTUAL_CARDS = frozenset({"1012", "1014", "1016", "1018", "101a", "101c", "101e", "a2d3"})


def gpus_seen(log: PastLog) -> dict[str, Line]:
    """The first line on each GPU, by address.

    Virtual functions of a GPU have another device or function number than 0.
    """
    found: dict[str, Line] = {}
    for line in log.lines:
        if match := _GPU.search(line.text):
            bdf = match[1] or match[2]
            if _whole(bdf):
                found.setdefault(bdf, line)
    return found


def _whole(bdf: str) -> bool:
    """Whether it may be a GPU itself: function 0 of device 0, or any device of bus 0, where
    virtual machines have theirs.
    """
    _, bus, rest = bdf.split(":")
    return rest == "00.0" or (bus == "00" and rest.endswith(".0"))


def cards_seen(log: PastLog) -> dict[str, Line]:
    """The first line on each physical function of a network card of NVIDIA, by address."""
    found: dict[str, Line] = {}
    for line in log.lines:
        if ((match := _CARD.search(line.text)) and match[2] not in _VIRTUAL_CARDS) or (
            match := _PHYSICAL.search(line.text)
        ):
            found.setdefault(match[1], line)
    return found
