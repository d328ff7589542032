"""Errors of GPUs and NVSwitches in the kernel log: how many, the latest, and later resets."""

import re
from dataclasses import dataclass, field

from busbw.check.kernel_log.judge import line_evidence, repeated
from busbw.check.types import SEVERITY, Finding
from busbw.core.finding import Verdict
from busbw.core.nvlink5_xids import link_effect
from busbw.core.sxids import WORDS
from busbw.core.xids import Effect
from busbw.core.xids import xid as xid_row
from busbw.host.gpu import short_bus
from busbw.host.kernel_log import LoggedXid, logged_xids
from busbw.host.kernel_log_past import KernelLogLine, PastLog

HOPPER = 90  # compute capability
HARMLESS, SECONDARY = "harmless", "secondary"
_REGISTERS = re.compile(r"on link \d+ ?\(((?:0x[0-9a-f]+(?:, )?){7})\)", re.IGNORECASE)
# By register: bits that can be ignored or that report corrected errors above a threshold, and bits
# that follow another error.
_HARMLESS_BITS: dict[int, tuple[int, ...]] = {0: (0, 23, 30), 4: (20, 23, 26, 29)}
_SECONDARY_BITS: dict[int, tuple[int, ...]] = {0: (1, 20), 3: (16, 17)}
CATALOG = "NVIDIA's Xid catalog"
_RECOVERY = re.compile(r" to 0x([0-9a-f]{1,8}) \(([^)]+)\)", re.IGNORECASE)
_PCI_RESET = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]): reset done", re.ASCII)
_RELOADED = re.compile(
    r"nvidia-nvlink: (?:Nvlink Core is being initialized|Unregistered Nvlink Core)"
)
RECOVERY_XID, NVLINK_XID = 154, 74
MAX_NAMED_ERRORS = 4  # errors of a device in a message; the rest is counted
NO_ACTION = "None"
DETAILS = "severity not in the log"  # of an SXid of which only lines with details are there
NEVER_S = float("-inf")


def nvlink_severity(text: str) -> str:
    """`harmless` if no set bit needs action, `secondary` if all follow another error, else ''."""
    match = _REGISTERS.search(text)
    if match is None:
        return ""
    registers = [int(word, 16) for word in match[1].split(", ")]
    remaining = [value & ~_mask(_HARMLESS_BITS, place) for place, value in enumerate(registers)]
    if not any(registers):
        return ""
    if not any(remaining):
        return HARMLESS
    if any(value & ~_mask(_SECONDARY_BITS, place) for place, value in enumerate(remaining)):
        return ""
    return SECONDARY


def _mask(bits: dict[int, tuple[int, ...]], register: int) -> int:
    return sum(1 << bit for bit in bits.get(register, ()))


@dataclass(frozen=True, slots=True)
class LoggedErrors:
    """All errors of one number, severity and device."""

    bus: str
    number: int
    word: str  # what the line says of its severity or effect; '' if nothing
    times: int
    line: KernelLogLine  # the latest
    age_s: float
    ago: str  # the age in words

    @property
    def counted(self) -> str:
        """` x 3, 2 h ago`."""
        return f"{repeated(self.times)}, {self.ago}"


@dataclass(frozen=True, slots=True)
class JudgedErrors:
    """The verdict on an event, as text, with its remedy."""

    verdict: Verdict
    text: str
    fix: str
    event: LoggedErrors


@dataclass(slots=True)
class Resets:
    """When devices were reset, in seconds of the boot clock, by their bus."""

    reset: dict[str, float] = field(default_factory=dict)  # by the kernel
    # By the driver, when it reported that no action is needed any more.
    cleared: dict[str, float] = field(default_factory=dict)
    driver_s: float | None = None  # when the driver was last loaded

    def after(self, bus: str, at_s: float) -> bool:
        """Whether the device was reset, or declared to be in order, after `at_s`."""
        return self.reset.get(bus, NEVER_S) > at_s or self.cleared_after(bus, at_s)

    def cleared_after(self, bus: str, at_s: float) -> bool:
        """Whether the driver withdrew its request for an action after `at_s`."""
        return self.cleared.get(bus, NEVER_S) > at_s

    def reloaded_after(self, at_s: float) -> bool:
        """Whether the driver was loaded again after `at_s`."""
        return self.driver_s is not None and self.driver_s > at_s


def events(log: PastLog, *, switch: bool) -> list[LoggedErrors]:
    """The Xids of GPUs, or with `switch` the SXids of NVSwitches."""
    by_key: dict[tuple[str, int, str], LoggedErrors] = {}
    for line in log.lines:
        for xid in logged_xids(line.text):
            if xid.switch is switch:
                word = _switch_word(xid) if switch else _link_word(xid)
                key = xid.bus, xid.number, word
                times = by_key[key].times + 1 if key in by_key and word != DETAILS else 1
                by_key[key] = LoggedErrors(*key, times, line, log.age_s(line), log.ago(line))
    reported = {key[:2] for key in by_key if key[2] != DETAILS}
    return [error for key, error in by_key.items() if key[2] != DETAILS or key[:2] not in reported]


def _switch_word(sxid: LoggedXid) -> str:
    if sxid.is_detail:
        return DETAILS
    word = sxid.text.removeprefix(", ").partition(",")[0]
    return word if word in WORDS else ""


def _link_word(xid: LoggedXid) -> str:
    if xid.number == NVLINK_XID:
        return nvlink_severity(xid.text)
    return link_effect(xid.text).value if xid_row(xid.number).effect is Effect.LINK else ""


def recovery(text: str) -> str:
    """The action that a line of Xid 154 asks for: `GPU Reset Required`; '' if it names none."""
    match = _RECOVERY.search(text)
    return match[2] if match else ""


def recovery_number(text: str) -> int | None:
    """Its nvmlDeviceGpuRecoveryAction_t; None if it names none."""
    match = _RECOVERY.search(text)
    return int(match[1], 16) if match else None


def of_device(subject: str, judged: list[JudgedErrors]) -> Finding:
    """The finding on a device: its worst errors, then the others."""
    ordered = sorted(
        judged, key=lambda judgment: (SEVERITY.index(judgment.verdict), judgment.event.age_s)
    )
    worst = ordered[0]
    message = "; ".join(judgment.text for judgment in ordered[:MAX_NAMED_ERRORS])
    if len(ordered) > MAX_NAMED_ERRORS:
        message += f"; and {len(ordered) - MAX_NAMED_ERRORS} more"
    lines = [judgment.event.line for judgment in ordered if judgment.verdict is worst.verdict]
    fix = "" if worst.verdict is Verdict.PASS else worst.fix
    return Finding(worst.verdict, subject, message, tuple(map(line_evidence, lines)), fix)


def resets(log: PastLog) -> Resets:
    """The resets that the log reports.

    NVIDIA's driver does not log them; the kernel does since Linux 6.10.
    """
    result = Resets()
    for line in log.lines:
        match = _PCI_RESET.search(line.text)
        if match:
            result.reset[short_bus(match[1])] = line.at_s
        elif _RELOADED.search(line.text):
            result.driver_s = line.at_s
        for xid in logged_xids(line.text):
            if xid.number == RECOVERY_XID and recovery(xid.text) == NO_ACTION:
                result.cleared[xid.bus] = line.at_s
    return result
