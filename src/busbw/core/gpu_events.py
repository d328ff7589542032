"""What a GPU says about itself: why its clocks are not higher, and the numbers of its driver's errors, one row each.

Sources: nvml.h (nvmlClocksEventReason*) and NVIDIA's Xid catalogue, docs.nvidia.com/deploy/xid-errors.
"""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How much a clocks event reason says."""

    HARMLESS = "harmless"
    LOAD = "load"  # normal for a GPU that works hard, worth naming when clocks fell
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class ClockReason:
    """One bit of NVML's clocks event reasons, formerly throttle reasons."""

    bit: int
    name: str
    severity: Severity
    meaning: str


CLOCK_REASONS: tuple[ClockReason, ...] = (
    ClockReason(0x1, "gpu_idle", Severity.HARMLESS, "nothing runs"),
    ClockReason(0x2, "applications_clocks_setting", Severity.HARMLESS, "the clocks that were set for applications"),
    ClockReason(0x4, "sw_power_cap", Severity.LOAD, "the power limit"),
    ClockReason(0x8, "hw_slowdown", Severity.BAD, "the hardware at least halved the clocks: heat, power brake or power draw"),
    ClockReason(0x10, "sync_boost", Severity.LOAD, "another GPU of its boost group holds it back"),
    ClockReason(0x20, "sw_thermal_slowdown", Severity.BAD, "GPU or memory is warmer than it should run"),
    ClockReason(0x40, "hw_thermal_slowdown", Severity.BAD, "too hot: the hardware at least halved the clocks"),
    ClockReason(0x80, "hw_power_brake_slowdown", Severity.BAD, "the power supply asked for less: the hardware at least halved the clocks"),
    ClockReason(0x100, "display_clock_setting", Severity.HARMLESS, "the display's clocks"),
)
# What a policy's time stands for: the counters of core/counters.py whose kind is THROTTLE.
POLICY_SEVERITY = {
    "power_policy": Severity.LOAD,
    "thermal_policy": Severity.BAD,
    "board_limit_policy": Severity.BAD,
    "reliability_policy": Severity.LOAD,
}
REASON_SEVERITY: dict[str, Severity] = {reason.name: reason.severity for reason in CLOCK_REASONS} | POLICY_SEVERITY


def clock_reasons(bits: int) -> list[str]:
    """Names of the reasons in NVML's bit mask; a bit without a name is its hexadecimal number."""
    names = [reason.name for reason in CLOCK_REASONS if bits & reason.bit]
    rest = bits & ~sum(reason.bit for reason in CLOCK_REASONS)
    return names + [f"{1 << place:#x}" for place in range(rest.bit_length()) if rest >> place & 1]


@dataclass(frozen=True, slots=True)
class XidRow:
    """One number of the catalogue; `fix` is what to do about it."""

    number: int
    meaning: str
    fix: str


_JOB = "look for the error in the program that ran"
_RESET = "drain the host, reset the GPU, check it again"
_RESTART = "start the program again; reset the GPU when it comes back"
_REBOOT = "reboot the host; when it comes back, the GPU or its slot is broken"
_LINKS = "check NVLink and the fabric manager, then reset the GPU"

XIDS: tuple[XidRow, ...] = (
    XidRow(13, "graphics engine exception", _JOB),
    XidRow(31, "GPU memory page fault", _JOB),
    XidRow(32, "invalid or corrupted push buffer", _JOB),
    XidRow(43, "GPU stopped processing", _JOB),
    XidRow(45, "cleanup after an earlier error", _JOB),
    XidRow(48, "double bit ECC error", _RESET),
    XidRow(61, "internal microcontroller breakpoint", _RESET),
    XidRow(62, "internal microcontroller halt", _RESET),
    XidRow(63, "row remapping recorded", "reset the GPU when it is free"),
    XidRow(64, "row remapping failed", "drain the host; the GPU's memory is worn out"),
    XidRow(69, "graphics engine class error", _JOB),
    XidRow(74, "NVLink error", _LINKS),
    XidRow(79, "GPU has fallen off the bus", _REBOOT),
    XidRow(92, "many single bit ECC errors", _RESET),
    XidRow(94, "contained ECC error", _RESTART),
    XidRow(95, "uncontained ECC error", _RESET),
    XidRow(109, "context switch timeout", _RESET),
    XidRow(119, "GSP firmware did not answer", _RESET),
    XidRow(120, "GSP firmware error", _RESET),
    XidRow(121, "C2C link corrected error", "watch it: many of them slow the link to the CPU"),
    XidRow(136, "link training failed", _RESET),
    XidRow(140, "unrecovered ECC error", _RESET),
    XidRow(143, "GPU initialisation failed", _RESET),
    *(XidRow(number, "NVLink error", _LINKS) for number in range(144, 151)),
    XidRow(154, "GPU asks for a recovery action", "do what its message in the kernel log asks for"),
)
XID_BY_NUMBER: dict[int, XidRow] = {row.number: row for row in XIDS}
SXID_FIX = "check NVSwitch and the fabric manager's log"


def xid_meaning(number: int, *, switch: bool = False) -> str:
    """The meaning of an Xid (of an NVSwitch's SXid) in a few words."""
    if switch:
        return "NVSwitch error"
    row = XID_BY_NUMBER.get(number)
    return row.meaning if row else "see NVIDIA's Xid catalogue"


def xid_fix(number: int, *, switch: bool = False) -> str:
    """What to do about it."""
    row = XID_BY_NUMBER.get(number)
    return SXID_FIX if switch else row.fix if row else "look it up in NVIDIA's Xid catalogue"
