"""The table of NVML's clocks event reasons: why a GPU's clocks are reduced.

Source: nvml.h (nvmlClocksEventReason*).
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
    ClockReason(
        0x2, "applications_clocks_setting", Severity.HARMLESS, "application clocks are set"
    ),
    ClockReason(0x4, "sw_power_cap", Severity.LOAD, "the power limit"),
    ClockReason(
        0x8,
        "hw_slowdown",
        Severity.BAD,
        "hardware reduced the clocks by half or more: temperature, power brake or power draw",
    ),
    ClockReason(0x10, "sync_boost", Severity.LOAD, "limited by another GPU of its boost group"),
    ClockReason(0x20, "sw_thermal_slowdown", Severity.BAD, "GPU or memory temperature is too high"),
    ClockReason(
        0x40,
        "hw_thermal_slowdown",
        Severity.BAD,
        "overheating: hardware reduced the clocks by half or more",
    ),
    ClockReason(
        0x80,
        "hw_power_brake_slowdown",
        Severity.BAD,
        "power brake: hardware reduced the clocks by half or more",
    ),
    ClockReason(0x100, "display_clock_setting", Severity.HARMLESS, "display clocks are set"),
)
# Of the counters in core/counters.py whose kind is THROTTLE.
POLICY_SEVERITY = {
    "power_policy": Severity.LOAD,
    "thermal_policy": Severity.BAD,
    "board_limit_policy": Severity.BAD,
    "reliability_policy": Severity.LOAD,
}
REASON_SEVERITY: dict[str, Severity] = {
    reason.name: reason.severity for reason in CLOCK_REASONS
} | POLICY_SEVERITY


def clock_reasons(bits: int) -> list[str]:
    """Names of the reasons in NVML's bit mask; a bit without a name is its hexadecimal number."""
    names = [reason.name for reason in CLOCK_REASONS if bits & reason.bit]
    rest = bits & ~sum(reason.bit for reason in CLOCK_REASONS)
    return names + [f"{1 << bit:#x}" for bit in range(rest.bit_length()) if rest >> bit & 1]
