"""SXids: what NVIDIA's driver reports about an NVSwitch (core/sxids.csv).

Most lines have a word for the severity, and that word decides: a number may be fatal on one
generation and not on another. The table has the severity of lines without such a word, and says
which errors always need a restart of the host, and which need nothing.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cache

from busbw.core.table_file import rows


class SwitchEffect(Enum):
    """What an SXid means for the host of the NVSwitch, in the words of the reference page."""

    ALWAYS = "reboot"  # fatal to the whole fabric
    FATAL = "reset of GPUs and NVSwitches"  # fatal to the jobs that use the link
    WATCH = "watch"  # an error without lasting harm, or one that hints at a bad link
    NOTE = "none"  # corrected, or the end of a condition


# The driver does not log a reset by nvidia-smi, so the command writes a line for this check.
FIXES: dict[SwitchEffect, str] = {
    SwitchEffect.ALWAYS: (
        "drain the host first; stop all users of the GPUs; reboot it; if it comes back, replace the"
        " board"
    ),
    SwitchEffect.FATAL: (
        "drain the host first; systemctl stop nvidia-fabricmanager; nvidia-smi --gpu-reset;"
        " systemctl start nvidia-fabricmanager; echo '{switch}: reset done' > /dev/kmsg; or reboot"
        " it; if it comes back, replace the board"
    ),
    SwitchEffect.WATCH: (
        "journalctl -u nvidia-fabricmanager; if it recurs on the same link, dcgmi diag -r 3 and"
        " report it to the vendor"
    ),
    SwitchEffect.NOTE: "none",
}
WORDS: dict[str, SwitchEffect] = {
    "Correctable": SwitchEffect.NOTE,
    "Non-fatal": SwitchEffect.WATCH,
    "Fatal": SwitchEffect.FATAL,
}


@dataclass(frozen=True, slots=True)
class SxidRow:
    """One SXid. `ended_by` is the one that reports the end of its condition, 0 if none does."""

    number: int
    meaning: str
    effect: SwitchEffect
    ended_by: int = 0
    own_fix: str = ""

    def judged(self, word: str) -> SwitchEffect:
        """The effect of a line with this word for the severity ('' if it has none)."""
        effect = WORDS.get(word, self.effect)
        if effect is SwitchEffect.FATAL and self.effect is SwitchEffect.ALWAYS:
            return SwitchEffect.ALWAYS
        if effect is SwitchEffect.WATCH and self.effect is SwitchEffect.NOTE:
            return SwitchEffect.NOTE
        return effect

    def fix(self, effect: SwitchEffect, switch: str) -> str:
        """The remedy; `switch` is the NVSwitch's PCI address."""
        return (self.own_fix or FIXES[effect]).format(switch=switch)


@cache
def sxids() -> dict[int, SxidRow]:
    """All SXids of the table, by number."""
    return {row.number: row for row in rows("core/sxids.csv", SxidRow)}


def sxid(number: int) -> SxidRow:
    """The row of an SXid; one that warns if the table has none."""
    return sxids().get(number) or SxidRow(number, "not in the table of SXids", SwitchEffect.WATCH)
