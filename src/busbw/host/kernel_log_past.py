"""The kernel log from its oldest record: what drivers said before busbw was started.

`kernel_log` follows it from then on.

Only lines that a check judges, and those of GPUs, network devices and PCIe, are kept, so that a
snapshot holds nothing else. A flood of one message takes no place from others.

NVIDIA's GPUs and network cards that the kernel found on PCI since it started, by its log.

A card that falls off the bus and is removed leaves no trace in sysfs, but these lines.
"""

import os
import re
import time
from collections import defaultdict, deque
from itertools import chain

import msgspec

from busbw.core.kernel_rule import KMSG
from busbw.core.kernel_rules import concerned
from busbw.core.sizes import span
from busbw.host.kernel_log import logged_xids, records
from busbw.host.source import Source, Unavailable, once

CALL = "kmsg"
NO_RECORDS = "it has no records"  # some containers have /dev/null in its place

# Kept of each Xid of each device, and of each other kind: the newest.
MAX_LINES = 1000
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

# the kernel's form of bytes that are not printable ASCII, and rsyslog's of line breaks and tabs
_ESCAPED = re.compile(r"(?:\\x[0-9a-f]{2})+")
_CONTROL = re.compile(r"\s*(?:\n|#01[0-5])\s*")
# "NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: (PCI ID: 10de:26b5) installed in this system has",
# "NVRM: fallen off the bus and is not responding to commands." (open-gpu-kernel-modules, osinit.c)
_BEGINS = re.compile(r"NVRM: The NVIDIA GPU [0-9a-f:.]+(?! .*(?:fallen|is not|requires))")
_GOES_ON = re.compile(r"NVRM: (?:\(PCI ID|installed in this system has)")
_ENDS = re.compile(r"NVRM: (?:has )?fallen off the bus")
MAX_BEGUN = 64  # messages whose end is not there yet
OTHER_LINE, JUDGED_LINE, MATCHED_LINE = "other", "judged", "found"
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


class KernelLogLine(msgspec.Struct, frozen=True):
    """One line, logged at `at_s` seconds of the boot clock."""

    at_s: float
    text: str


class PastLog(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines that were kept, the oldest first.

    `now_s` is when they were read, `begins_s` the time of the oldest record of the log. `reason`
    says why the log cannot be read.
    """

    now_s: float = 0.0
    begins_s: float = 0.0
    lines: tuple[KernelLogLine, ...] = ()
    reason: str = ""
    file_lines: int = 0  # of a file's last line `now_s` is the time, whenever that was

    def age_s(self, line: KernelLogLine) -> float:
        """Seconds from the line to the reading."""
        return max(0.0, self.now_s - line.at_s)

    def ago(self, line: KernelLogLine) -> str:
        """`2 h ago`, or `2 h before the log ends` for a file."""
        return f"{span(self.age_s(line))} {'before the log ends' if self.file_lines else 'ago'}"


@once
def read_past(source: Source) -> PastLog:
    """The log, live or recorded."""
    reading = source.call(CALL, _past_log_json)
    if reading.data is None:
        return PastLog(reason=reading.reason)
    return msgspec.json.decode(reading.data, type=PastLog)


def parse(logged: list[bytes], now_s: float) -> PastLog:
    """The log from records as /dev/kmsg gives them; records of another form are left out."""
    texts = (data.decode("utf-8", "replace") for data in logged)
    parsed = [match for match in map(_RECORD.match, texts) if match]
    begins_s = int(parsed[0][2]) / 1e6 if parsed else now_s
    newest = NewestLines()
    for record in parsed:
        newest.add(int(record[2]) / 1e6, record[3])
    return PastLog(now_s, begins_s, newest.lines())


class NewestLines:
    """The newest lines of each kind, as the driver printed them."""

    def __init__(self) -> None:
        self._messages = _MessageJoiner()
        self._by_kind: defaultdict[str, deque[tuple[int, KernelLogLine]]] = defaultdict(
            lambda: deque(maxlen=MAX_LINES)
        )
        self._place = 0  # in the log

    def add(self, at_s: float, text: str) -> None:
        """Add the next line of the log."""
        self._place += 1
        plain = self._messages.whole(_unescape(text))
        kind = _kind(plain)
        if kind:
            self._by_kind[kind].append((self._place, KernelLogLine(at_s, plain)))

    def lines(self, start_s: float = 0.0) -> tuple[KernelLogLine, ...]:
        """The lines in their order, with times since `start_s`."""
        in_order = sorted(chain.from_iterable(self._by_kind.values()), key=lambda entry: entry[0])
        return tuple(KernelLogLine(line.at_s - start_s, line.text) for _, line in in_order)


class _MessageJoiner:
    """Joins the lines of messages that NVIDIA's driver prints in several, of which only one names
    the GPU. Lines of other processors may stand between them.
    """

    def __init__(self) -> None:
        self._begun: deque[str] = deque(maxlen=MAX_BEGUN)

    def whole(self, text: str) -> str:
        """The line, or the whole message if it is the last of one that has begun."""
        if _BEGINS.match(text):
            self._begun.append(text)
        elif _GOES_ON.match(text):
            for place, begun in enumerate(self._begun):
                if not _GOES_ON.search(begun):
                    self._begun[place] = f"{begun} {text}"
                    break
        elif self._begun and _ENDS.match(text):
            return f"{self._begun.popleft()} {text}"
        return text


def _kind(text: str) -> str:
    """The kind that a line is counted in; '' if it is not kept."""
    if _COMMAND_LINE.match(text):
        return ""
    xids = logged_xids(text)
    if xids:
        return f"{xids[0].bus} {xids[0].number} {xids[0].is_detail}"
    judged = concerned(text)
    if judged or _RESET.search(text):
        return f"{JUDGED_LINE} {judged}"
    if _FOUND.search(text):
        return MATCHED_LINE
    return OTHER_LINE if _DEVICES.search(text) else ""


def _unescape(text: str) -> str:
    """A record's text as the driver printed it, in one line.

    The kernel escapes line breaks and what is not ASCII.
    """
    text = _CONTROL.sub(" ", text)
    if "\\x" not in text:
        return text
    plain = _ESCAPED.sub(
        lambda run: bytes.fromhex(run[0].replace("\\x", "")).decode("utf-8", "replace"), text
    )
    return " ".join("".join(sign if sign.isprintable() else " " for sign in plain).split())


def _past_log_json() -> str:
    try:
        descriptor = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        needs = ""
        if isinstance(error, PermissionError):
            needs = " (it needs root, or sysctl kernel.dmesg_restrict=0)"
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


def gpus_seen(log: PastLog) -> dict[str, KernelLogLine]:
    """The first line on each GPU, by address. Virtual functions of GPUs are left out."""
    first_lines: dict[str, KernelLogLine] = {}
    for line in log.lines:
        match = _GPU.search(line.text)
        if match:
            bdf = match[1] or match[2]
            if not _is_virtual_gpu(bdf):
                first_lines.setdefault(bdf, line)
    return first_lines


def _is_virtual_gpu(bdf: str) -> bool:
    """Whether a GPU's address has another device or function number than 0.

    On bus 0, where virtual machines have their GPUs, any device number may be a GPU itself.
    """
    _, bus, device = bdf.split(":")
    return device != "00.0" and not (bus == "00" and device.endswith(".0"))


def cards_seen(log: PastLog) -> dict[str, KernelLogLine]:
    """The first line on each physical function of a network card of NVIDIA, by address."""
    first_lines: dict[str, KernelLogLine] = {}
    for line in log.lines:
        match = _CARD.search(line.text)
        if match is None or match[2] in _VIRTUAL_CARDS:
            match = _PHYSICAL.search(line.text)
        if match:
            first_lines.setdefault(match[1], line)
    return first_lines
