"""Xids: what NVIDIA's driver reports about a GPU (core/xids.csv), what each means for the node that
logged it, and the remedy.

Both follow from the action in NVIDIA's Xid catalog. The exceptions stand in the table.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cache

from busbw.core.table_file import rows

# investigatory actions that begin with the program
OF_PROGRAMS = ("CHECK_APP/CUDA", "WORKFLOW_XID_13", "WORKFLOW_XID_31")
# The driver does not log a reset by nvidia-smi, so the command writes a line for this check.
_RESET_GPU = "nvidia-smi --gpu-reset -i {gpu} && echo '{gpu}: reset done' > /dev/kmsg"
_RESET = (
    f"drain the host first; {_RESET_GPU}; if it comes back, run dcgmi diag -r 3 and replace the GPU"
)
_LINKS = f"drain the host first; nvidia-smi nvlink -e -i {{gpu}}; {_RESET_GPU}"
_APPLICATION = "look for the error in the application: compute-sanitizer"


class Effect(Enum):
    """What an Xid means for the node that logged it, in the words of the reference page."""

    REBOOT = "reboot"  # fails until the host is restarted
    RESET = "GPU reset"  # fails until the GPU is reset or the host restarted
    REPAIR = "repair"  # fails: somebody has to look at the machine
    LINK = "by severity"  # of NVLink 5 (core/nvlink5_xids.py); without more in the line, none
    RECOVERY = "by action"  # the line names the action
    RESTART = "restart the application"  # warns for a day: it may have been the GPU
    WATCH = "watch"  # warns
    APPLICATION = "application"  # passes: the program did it
    NOTE = "none"  # passes: no action


@dataclass(frozen=True, slots=True)
class XidRow:
    """One Xid.

    `action` and `investigate` are NVIDIA's immediate and investigatory actions, '' if the catalog
    has none. `own_effect` and `own_fix` are given where they do not follow from the action.
    """

    number: int
    mnemonic: str
    meaning: str
    action: str = ""
    investigate: str = ""
    own_effect: Effect | None = None
    own_fix: str = ""

    @property
    def effect(self) -> Effect:
        """The effect on the node."""
        if self.own_effect is not None:
            return self.own_effect
        if self.action == "RESTART_APP" and self.investigate in OF_PROGRAMS:
            return Effect.APPLICATION
        return EFFECTS.get(self.action, Effect.WATCH)

    def fix(self, gpu: str, effect: Effect | None = None) -> str:
        """The remedy; `gpu` is the GPU's PCI address, `effect` that of the line if it says more."""
        texts = FIXES_OF_LINKS if self.effect is Effect.LINK else FIXES
        as_in_table = effect in (None, self.effect) or self.effect is Effect.NOTE
        text = (as_in_table and self.own_fix) or texts[effect or self.effect]
        return text.replace("{reset}", _RESET_GPU).format(gpu=gpu)


EFFECTS: dict[str, Effect] = {
    "RESTART_BM": Effect.REBOOT,
    "RESTART_VM": Effect.REBOOT,
    "RESET_GPU": Effect.RESET,
    # This workflow ends in a reset, whether 63, 64, 94 or 95 follow or not.
    "WORKFLOW_XID_48": Effect.RESET,
    "WORKFLOW_NVLINK_ERR": Effect.RESET,  # the link stays down until then
    "CONTACT_SUPPORT": Effect.REPAIR,
    "CHECK_MECHANICALS": Effect.REPAIR,
    "WORKFLOW_NVLINK5_ERR": Effect.LINK,
    "XID_154": Effect.RECOVERY,
    "RESTART_APP": Effect.RESTART,
    "UPDATE_SWFW": Effect.WATCH,
    "CHECK_UVM": Effect.WATCH,
    "WORKFLOW_XID_45": Effect.APPLICATION,
    "IGNORE": Effect.NOTE,
}

FIXES: dict[Effect, str] = {
    Effect.REBOOT: (
        "drain the host first; reboot it; if it comes back, replace the GPU or reseat it"
    ),
    Effect.RESET: _RESET,
    Effect.REPAIR: "drain the host first; dcgmi diag -r 3 -i {gpu}; report it to the vendor",
    Effect.RECOVERY: "drain the host first; do what the line says",
    Effect.RESTART: "restart the application; if it recurs on this GPU, dcgmi diag -r 3 -i {gpu}",
    Effect.WATCH: "look it up in NVIDIA's Xid catalog; if it recurs, dcgmi diag -r 3 -i {gpu}",
    Effect.APPLICATION: _APPLICATION,
    Effect.NOTE: "none; if it recurs, report it to the vendor",
}
FIXES_OF_LINKS: dict[Effect, str] = {
    Effect.RESET: _LINKS + "; if it comes back, check the link's cable and the peer",
    Effect.RESTART: (
        "restart the application, and do what Xid 154 asks for if the driver logs it; if it recurs"
        " on this link, nvidia-smi nvlink -e -i {gpu}"
    ),
    Effect.LINK: (
        "nvidia-smi nvlink -e -i {gpu} shows the errors of the link, which works; if they grow,"
        " check its cable and the peer"
    ),
}


@cache
def xids() -> dict[int, XidRow]:
    """All Xids of the table, by number."""
    return {row.number: row for row in rows("core/xids.csv", XidRow)}


def xid(number: int) -> XidRow:
    """The row of an Xid; one that warns if the table has none."""
    return xids().get(number) or XidRow(number, "", "not in NVIDIA's Xid catalog")
