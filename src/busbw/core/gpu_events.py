"""Tables of NVML's clocks event reasons (why a GPU's clocks are reduced) and of Xids, the driver's error numbers.

Sources: nvml.h (nvmlClocksEventReason*) and NVIDIA's Xid catalog, docs.nvidia.com/deploy/xid-errors.
"""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How serious a clocks event reason is."""

    HARMLESS = "harmless"
    LOAD = "load"  # normal under load; reported only if clocks fell
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class ClockReason:
    """One bit of NVML's clocks event reasons, formerly throttle reasons."""

    bit: int
    name: str
    severity: Severity
    meaning: str


CLOCK_REASONS: tuple[ClockReason, ...] = (
    ClockReason(0x1, "gpu_idle", Severity.HARMLESS, "the GPU is idle"),
    ClockReason(0x2, "applications_clocks_setting", Severity.HARMLESS, "application clocks are set"),
    ClockReason(0x4, "sw_power_cap", Severity.LOAD, "the power limit"),
    ClockReason(0x8, "hw_slowdown", Severity.BAD, "hardware reduced the clocks by half or more: temperature, power brake or power draw"),
    ClockReason(0x10, "sync_boost", Severity.LOAD, "limited by another GPU of its boost group"),
    ClockReason(0x20, "sw_thermal_slowdown", Severity.BAD, "GPU or memory temperature is too high"),
    ClockReason(0x40, "hw_thermal_slowdown", Severity.BAD, "overheating: hardware reduced the clocks by half or more"),
    ClockReason(0x80, "hw_power_brake_slowdown", Severity.BAD, "power brake: hardware reduced the clocks by half or more"),
    ClockReason(0x100, "display_clock_setting", Severity.HARMLESS, "display clocks are set"),
)
# Of the counters in core/counters.py whose kind is THROTTLE.
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
    return names + [f"{1 << bit:#x}" for bit in range(rest.bit_length()) if rest >> bit & 1]


class Blame(Enum):
    """What an Xid says about the GPU that logged it."""

    APPLICATION = "application"  # the program did it; the GPU is fine
    DEGRADED = "degraded"  # the GPU works on, but needs attention
    BROKEN = "broken"  # jobs on this GPU fail until it is reset, or the host restarted


@dataclass(frozen=True, slots=True)
class XidRow:
    """One Xid of NVIDIA's catalog; `fix` is the remedy."""

    number: int
    meaning: str
    fix: str
    blame: Blame = Blame.BROKEN


_JOB = "look for the error in the application"
_RESET = "drain the host, reset the GPU and check it again"
_RESTART = "restart the application; if the error recurs, reset the GPU"
_REBOOT = "reboot the host; if the error recurs, replace the GPU or its slot"
_LINKS = "check NVLink and the fabric manager, then reset the GPU"
_CATALOG = "look it up in NVIDIA's Xid catalog"

XIDS: tuple[XidRow, ...] = (
    XidRow(13, "graphics engine exception", _JOB, Blame.APPLICATION),
    XidRow(31, "GPU memory page fault", _JOB, Blame.APPLICATION),
    XidRow(32, "invalid or corrupted push buffer", _JOB, Blame.APPLICATION),
    XidRow(43, "GPU stopped processing", _JOB, Blame.APPLICATION),
    XidRow(45, "cleanup after an earlier error", _JOB, Blame.APPLICATION),
    XidRow(48, "double bit ECC error", _RESET),
    XidRow(56, "display engine error", _CATALOG, Blame.DEGRADED),
    XidRow(57, "error of the memory interface", _RESET),
    XidRow(58, "error of the memory interface", _RESET),
    XidRow(61, "internal microcontroller breakpoint", _RESET),
    XidRow(62, "internal microcontroller halt", _RESET),
    XidRow(63, "row remapping recorded", "reset the GPU when it is idle", Blame.DEGRADED),
    XidRow(64, "row remapping failed", "drain the host and replace the GPU"),
    XidRow(65, "video encoder error", _RESTART, Blame.DEGRADED),
    XidRow(68, "video decoder error", _RESTART, Blame.DEGRADED),
    XidRow(69, "graphics engine class error", _JOB, Blame.APPLICATION),
    XidRow(73, "video encoder error", _RESTART, Blame.DEGRADED),
    XidRow(74, "NVLink error", _LINKS),
    XidRow(79, "GPU has fallen off the bus", _REBOOT),
    XidRow(80, "corrupted data in a push buffer", _RESET),
    XidRow(81, "VGA subsystem error", _CATALOG, Blame.DEGRADED),
    XidRow(92, "many single bit ECC errors", _RESET, Blame.DEGRADED),
    XidRow(94, "contained ECC error", _RESTART, Blame.DEGRADED),
    XidRow(95, "uncontained ECC error", _RESET),
    XidRow(109, "context switch timeout", _RESET),
    XidRow(119, "GSP firmware timeout", _RESET),
    XidRow(120, "GSP firmware error", _RESET),
    XidRow(121, "C2C link corrected error", "monitor it: frequent errors slow the link to the CPU", Blame.DEGRADED),
    XidRow(136, "link training failed", _RESET),
    XidRow(140, "unrecovered ECC error", _RESET),
    XidRow(143, "GPU initialization failed", _RESET),
    *(XidRow(number, "NVLink error", _LINKS, Blame.DEGRADED) for number in range(144, 149)),
    XidRow(149, "fatal NVLink error", _LINKS),
    XidRow(150, "NVLink error", _LINKS, Blame.DEGRADED),
    XidRow(154, "GPU requests a recovery action", "perform the action named in the kernel log"),
)
XID_BY_NUMBER: dict[int, XidRow] = {row.number: row for row in XIDS}


def xid(number: int, *, switch: bool = False) -> XidRow:
    """The row of an Xid, or one for every SXid of an NVSwitch (`switch`)."""
    if switch:
        return XidRow(number, "NVSwitch error", "check NVSwitch and the fabric manager's log")
    return XID_BY_NUMBER.get(number) or XidRow(number, "see NVIDIA's Xid catalog", _CATALOG, Blame.DEGRADED)
