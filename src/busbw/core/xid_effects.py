"""What an Xid means for the node that logged it, and the remedy.

Both follow from the action in NVIDIA's Xid catalog (core/xids.py). EFFECTS_OF gives the sources of
the exceptions.
"""

from dataclasses import dataclass
from enum import Enum

# investigatory actions that begin with the program
OF_PROGRAMS = ("CHECK_APP/CUDA", "WORKFLOW_XID_13", "WORKFLOW_XID_31")
# The driver does not log a reset by nvidia-smi, so the command writes a line for this check.
_RESET_GPU = "nvidia-smi --gpu-reset -i {gpu} && echo '{gpu}: reset done' > /dev/kmsg"
_RESET = (
    f"drain the host first; {_RESET_GPU}; if it comes back, run dcgmi diag -r 3 and replace the GPU"
)
_LINKS = f"drain the host first; nvidia-smi nvlink -e -i {{gpu}}; {_RESET_GPU}"
_APPLICATION = "look for the error in the application: compute-sanitizer"
_POWER = "drain the host first; power it off and connect the auxiliary power of GPU {gpu}"
FIX_OF: dict[int, str] = {
    54: _POWER,
    63: f"reset the GPU when it is idle: {_RESET_GPU}",
    64: f"drain the host first; {_RESET_GPU}; if remapping fails again, replace the GPU",
    74: _LINKS + "; check the fabric manager and the peer of the link",
    78: "install matching versions of the vGPU manager and the guest driver",
    79: (
        "drain the host first; reboot it; if it comes back, reseat or replace the GPU, its power"
        " cable or riser"
    ),
    136: _LINKS + "; if training fails again, check the link's cable, the switch and the peer",
    151: "drain the host first; restart the virtual machine",
    155: _LINKS,
}


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
    has none.
    """

    number: int
    mnemonic: str
    meaning: str
    action: str = ""
    investigate: str = ""

    @property
    def effect(self) -> Effect:
        """The effect on the node."""
        if self.number in EFFECTS_OF:
            return EFFECTS_OF[self.number]
        if self.action == "RESTART_APP" and self.investigate in OF_PROGRAMS:
            return Effect.APPLICATION
        return EFFECTS.get(self.action, Effect.WATCH)

    def fix(self, gpu: str, effect: Effect | None = None) -> str:
        """The remedy; `gpu` is the GPU's PCI address, `effect` that of the line if it says more."""
        texts = FIXES_OF_LINKS if self.effect is Effect.LINK else FIXES
        as_in_table = effect in (None, self.effect) or self.effect is Effect.NOTE
        if as_in_table and self.number in FIX_OF:
            return FIX_OF[self.number].format(gpu=gpu)
        return texts[effect or self.effect].format(gpu=gpu)


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
EFFECTS_OF: dict[int, Effect] = {
    43: Effect.APPLICATION,  # the catalog: a program's channel was reset, the GPU is healthy
    57: Effect.RESET,
    58: Effect.RESET,
    61: Effect.RESET,  # Azure node health checks drain the node
    # The catalog describes these without an action.
    162: Effect.NOTE,
    163: Effect.NOTE,
    167: Effect.REBOOT,  # as 79: the GPU does not answer on PCIe
    169: Effect.RESET,  # as 62: a microcontroller halted
    171: Effect.RESET,
    172: Effect.RESET,  # more of Xid 48
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
