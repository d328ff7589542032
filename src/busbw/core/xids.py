"""The table of Xids: what NVIDIA's driver reports of a GPU, and what NVIDIA says to do about it.

Source: NVIDIA's Xid catalog, docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, for
Ampere and newer, as of 2025-10-29: 172 numbers, of which it describes these 109. Mnemonics and
actions are NVIDIA's. EFFECTS_OF says where the effect of other rows is from.
"""

from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """What an Xid means for the node that logged it.

    The value is the word of the reference page.
    """

    REBOOT = "reboot"  # fails until the host is restarted
    RESET = "GPU reset"  # fails until the GPU is reset or the host restarted
    REPAIR = "repair"  # fails: somebody has to look at the machine
    LINK = "by severity"  # Fatal: GPU reset; Nonfatal: watch
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
        """What it means for the node."""
        if self.number in EFFECTS_OF:
            return EFFECTS_OF[self.number]
        if self.action == "RESTART_APP" and self.investigate in OF_PROGRAMS:
            return Effect.APPLICATION
        return EFFECTS.get(self.action, Effect.WATCH)

    def fix(self, gpu: str) -> str:
        """The remedy; `gpu` is the GPU's PCI address."""
        return FIX_OF.get(self.number, FIXES[self.effect]).format(gpu=gpu)


EFFECTS: dict[str, Effect] = {
    "RESTART_BM": Effect.REBOOT,
    "RESTART_VM": Effect.REBOOT,
    "RESET_GPU": Effect.RESET,
    # its workflow ends in a reset, whether 63, 64, 94 or 95 follow or not
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
# investigatory actions that begin with the program
OF_PROGRAMS = ("CHECK_APP/CUDA", "WORKFLOW_XID_13", "WORKFLOW_XID_31")
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

# The driver logs no reset by nvidia-smi: the line tells this check of it.
_RESET_GPU = "nvidia-smi --gpu-reset -i {gpu} && echo '{gpu}: reset done' > /dev/kmsg"
_RESET = (
    f"drain the host first; {_RESET_GPU}; if it comes back, run dcgmi diag -r 3 and replace the GPU"
)
_LINKS = f"drain the host first; nvidia-smi nvlink -e -i {{gpu}}; {_RESET_GPU}"
_APPLICATION = "look for the error in the application: compute-sanitizer"
FIXES: dict[Effect, str] = {
    Effect.REBOOT: (
        "drain the host first; reboot it; if it comes back, replace the GPU or reseat it"
    ),
    Effect.RESET: _RESET,
    Effect.REPAIR: "drain the host first; dcgmi diag -r 3 -i {gpu}; report it to the vendor",
    Effect.LINK: _LINKS + "; if it comes back, check the link's cable and the peer",
    Effect.RECOVERY: "drain the host first; do what the line says",
    Effect.RESTART: "restart the application; if it recurs on this GPU, dcgmi diag -r 3 -i {gpu}",
    Effect.WATCH: "look it up in NVIDIA's Xid catalog; if it recurs, dcgmi diag -r 3 -i {gpu}",
    Effect.APPLICATION: _APPLICATION,
    Effect.NOTE: "none; if it recurs, report it to the vendor",
}
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

XIDS: tuple[XidRow, ...] = (
    XidRow(
        8,
        "ROBUST_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT",
        "GPU stopped processing",
        "RESTART_APP",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        11,
        "ROBUST_CHANNEL_GR_ERROR_MISSING_HW",
        "invalid push buffer",
        "RESTART_APP",
        "CHECK_APP/CUDA",
    ),
    XidRow(
        13,
        "ROBUST_CHANNEL_GR_EXCEPTION",
        "graphics engine exception",
        "RESTART_APP",
        "WORKFLOW_XID_13",
    ),
    XidRow(
        25,
        "ROBUST_CHANNEL_GR_ILLEGAL_NOTIFY",
        "illegal push buffer",
        "RESTART_APP",
        "CHECK_APP/CUDA",
    ),
    XidRow(
        31,
        "ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT",
        "GPU memory page fault",
        "RESTART_APP",
        "WORKFLOW_XID_31",
    ),
    XidRow(
        32,
        "ROBUST_CHANNEL_PBDMA_ERROR",
        "invalid or corrupted push buffer",
        "RESTART_APP",
        "CHECK_APP/CUDA",
    ),
    XidRow(
        37,
        "ROBUST_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD",
        "driver firmware error",
        "IGNORE",
        "CHECK_APP/CUDA",
    ),
    XidRow(
        38,
        "ROBUST_CHANNEL_FECS_ERR_WATCHDOG_TIMEOUT",
        "driver firmware watchdog timeout",
        "IGNORE",
        "CONTACT_SUPPORT",
    ),
    XidRow(39, "ROBUST_CHANNEL_CE0_ERROR", "copy engine 0 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(40, "ROBUST_CHANNEL_CE1_ERROR", "copy engine 1 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(41, "ROBUST_CHANNEL_CE2_ERROR", "copy engine 2 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(
        43,
        "ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR",
        "GPU stopped processing a program",
        "IGNORE",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        44,
        "ROBUST_CHANNEL_GR_FAULT_DURING_CTXSW",
        "graphics engine fault in a context switch",
        "IGNORE",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        45,
        "ROBUST_CHANNEL_PREEMPTIVE_REMOVAL",
        "cleanup after an earlier error",
        "WORKFLOW_XID_45",
        "RESTART_FM if alone",
    ),
    XidRow(
        46,
        "ROBUST_CHANNEL_GPU_TIMEOUT_ERROR",
        "GPU stopped processing",
        "RESET_GPU",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        48,
        "ROBUST_CHANNEL_GPU_ECC_DBE",
        "double bit ECC error",
        "WORKFLOW_XID_48",
        "WORKFLOW_XID_48",
    ),
    XidRow(
        54,
        "SILENT_RUNNING_PWR_REDUCED_CLOCKING",
        "auxiliary power is not connected",
        "CHECK_MECHANICALS",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        60,
        "ROBUST_CHANNEL_SEC2_ERROR",
        "video processor exception",
        "RESTART_APP",
        "INVESTIGATE_SW",
    ),
    XidRow(62, "PMU_HALT_ERROR", "internal microcontroller halt", "RESET_GPU", "CONTACT_SUPPORT"),
    XidRow(63, "INFOROM_DRAM_RETIREMENT_EVENT", "row remapping recorded", "IGNORE", "IGNORE"),
    XidRow(
        64,
        "INFOROM_DRAM_RETIREMENT_FAILURE",
        "row remapping failed",
        "RESET_GPU",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        66,
        "ROBUST_CHANNEL_FECS_ERR_REG_ACCESS_VIOLATION",
        "illegal access by the driver",
        "IGNORE",
        "INVESTIGATE_SW",
    ),
    XidRow(
        67,
        "ROBUST_CHANNEL_FECS_ERR_VERIF_VIOLATION",
        "illegal access by the driver",
        "IGNORE",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        68, "ROBUST_CHANNEL_NVDEC0_ERROR", "video decoder 0 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        69,
        "ROBUST_CHANNEL_GR_CLASS_ERROR",
        "graphics engine class error",
        "RESTART_APP",
        "CHECK_APP/CUDA",
    ),
    XidRow(70, "ROBUST_CHANNEL_CE3_ERROR", "copy engine 3 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(71, "ROBUST_CHANNEL_CE4_ERROR", "copy engine 4 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(72, "ROBUST_CHANNEL_CE5_ERROR", "copy engine 5 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(74, "NVLINK_ERROR", "NVLink error", "WORKFLOW_NVLINK_ERR", "CONTACT_SUPPORT"),
    XidRow(75, "ROBUST_CHANNEL_CE6_ERROR", "copy engine 6 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(76, "ROBUST_CHANNEL_CE7_ERROR", "copy engine 7 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(77, "ROBUST_CHANNEL_CE8_ERROR", "copy engine 8 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(78, "VGPU_START_ERROR", "vGPU did not start", "UPDATE_SWFW", "UPDATE_SWFW"),
    XidRow(
        79,
        "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS",
        "GPU has fallen off the bus",
        "RESTART_BM",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        80,
        "PBDMA_PUSHBUFFER_CRC_MISMATCH",
        "corrupted data sent to the GPU",
        "RESTART_APP",
        "CHECK_APP/CUDA",
    ),
    XidRow(
        82, "ROBUST_CHANNEL_NVJPG0_ERROR", "JPEG decoder 0 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        83, "ROBUST_CHANNEL_NVDEC1_ERROR", "video decoder 1 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        84, "ROBUST_CHANNEL_NVDEC2_ERROR", "video decoder 2 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(85, "ROBUST_CHANNEL_CE9_ERROR", "copy engine 9 error", "RESTART_APP", "CONTACT_SUPPORT"),
    XidRow(
        86, "ROBUST_CHANNEL_OFA0_ERROR", "optical flow exception", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        88, "ROBUST_CHANNEL_NVDEC3_ERROR", "video decoder 3 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        89, "ROBUST_CHANNEL_NVDEC4_ERROR", "video decoder 4 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        92, "EXCESSIVE_SBE_INTERRUPTS", "many single bit ECC errors", "IGNORE", "CONTACT_SUPPORT"
    ),
    XidRow(
        93,
        "INFOROM_ERASE_LIMIT_EXCEEDED",
        "InfoROM was written too often",
        "IGNORE",
        "CONTACT_SUPPORT",
    ),
    XidRow(94, "ROBUST_CHANNEL_CONTAINED_ERROR", "contained memory error", "RESTART_APP", "IGNORE"),
    XidRow(
        95, "ROBUST_CHANNEL_UNCONTAINED_ERROR", "uncontained memory error", "RESET_GPU", "IGNORE"
    ),
    XidRow(
        96, "ROBUST_CHANNEL_NVDEC5_ERROR", "video decoder 5 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        97, "ROBUST_CHANNEL_NVDEC6_ERROR", "video decoder 6 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        98, "ROBUST_CHANNEL_NVDEC7_ERROR", "video decoder 7 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        99, "ROBUST_CHANNEL_NVJPG1_ERROR", "JPEG decoder 1 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        100, "ROBUST_CHANNEL_NVJPG2_ERROR", "JPEG decoder 2 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        101, "ROBUST_CHANNEL_NVJPG3_ERROR", "JPEG decoder 3 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        102, "ROBUST_CHANNEL_NVJPG4_ERROR", "JPEG decoder 4 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        103, "ROBUST_CHANNEL_NVJPG5_ERROR", "JPEG decoder 5 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        104, "ROBUST_CHANNEL_NVJPG6_ERROR", "JPEG decoder 6 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        105, "ROBUST_CHANNEL_NVJPG7_ERROR", "JPEG decoder 7 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(106, "SMBPBI_TEST_MESSAGE", "test message of the SMBus interface", "IGNORE", "IGNORE"),
    XidRow(
        107,
        "SMBPBI_TEST_MESSAGE_SILENT",
        "silent test message of the SMBus interface",
        "IGNORE",
        "IGNORE",
    ),
    XidRow(
        109,
        "ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR",
        "context switch timeout",
        "RESET_GPU",
        "CONTACT_SUPPORT",
    ),
    XidRow(110, "SEC_FAULT_ERROR", "security fault", "RESET_GPU", "INVESTIGATE_SW"),
    XidRow(119, "GSP_RPC_TIMEOUT", "GSP firmware timeout", "RESET_GPU", "INVESTIGATE_SW"),
    XidRow(120, "GSP_ERROR", "GSP firmware error", "RESET_GPU", "INVESTIGATE_SW"),
    XidRow(121, "C2C_ERROR", "C2C link error", "IGNORE", "CONTACT_SUPPORT"),
    XidRow(
        126, "ROBUST_CHANNEL_CE10_ERROR", "copy engine 10 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        127, "ROBUST_CHANNEL_CE11_ERROR", "copy engine 11 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        128, "ROBUST_CHANNEL_CE12_ERROR", "copy engine 12 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        129, "ROBUST_CHANNEL_CE13_ERROR", "copy engine 13 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        130, "ROBUST_CHANNEL_CE14_ERROR", "copy engine 14 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        131, "ROBUST_CHANNEL_CE15_ERROR", "copy engine 15 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        132, "ROBUST_CHANNEL_CE16_ERROR", "copy engine 16 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        133, "ROBUST_CHANNEL_CE17_ERROR", "copy engine 17 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        134, "ROBUST_CHANNEL_CE18_ERROR", "copy engine 18 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        135, "ROBUST_CHANNEL_CE19_ERROR", "copy engine 19 error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(136, "ALI_TRAINING_FAIL", "NVLink training failed", "RESET_GPU", "INVESTIGATE_LINK_SI"),
    XidRow(137, "NVLINK_PRIV_ERR", "NVLink privilege error", "IGNORE", "XID_137_FLOW"),
    XidRow(
        139, "ROBUST_CHANNEL_OFA1_ERROR", "optical flow error", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    XidRow(
        140,
        "UNRECOVERABLE_ECC_ERROR_ESCAPE",
        "unrecovered ECC error",
        "RESET_GPU",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        141, "ROBUST_CHANNEL_FAST_PATH_ERROR", "CUDA fast path error", "IGNORE", "CONTACT_SUPPORT"
    ),
    XidRow(142, "ROBUST_CHANNEL_NVENC3_ERROR", "video encoder 3 error", "CONTACT_SUPPORT"),
    XidRow(143, "GPU_INIT_ERROR", "GPU initialization failed", "RESET_GPU", "CONTACT_SUPPORT"),
    XidRow(
        144, "NVLINK_SAW_ERROR", "NVLink SAW error", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK5_ERR"
    ),
    XidRow(
        145, "NVLINK_RLW_ERROR", "NVLink RLW error", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK5_ERR"
    ),
    XidRow(
        146, "NVLINK_TLW_ERROR", "NVLink TLW error", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK5_ERR"
    ),
    XidRow(
        147,
        "NVLINK_TREX_ERROR",
        "NVLink TREX error",
        "WORKFLOW_NVLINK5_ERR",
        "WORKFLOW_NVLINK5_ERR",
    ),
    XidRow(
        148,
        "NVLINK_NVLPW_CTRL_ERROR",
        "NVLink NVLPW_CTRL error",
        "WORKFLOW_NVLINK5_ERR",
        "WORKFLOW_NVLINK5_ERR",
    ),
    XidRow(
        149,
        "NVLINK_NETIR_ERROR",
        "NVLink NETIR error",
        "WORKFLOW_NVLINK5_ERR",
        "WORKFLOW_NVLINK5_ERR",
    ),
    XidRow(
        150, "NVLINK_MSE_ERROR", "NVLink MSE error", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK5_ERR"
    ),
    XidRow(
        151,
        "ROBUST_CHANNEL_KEY_ROTATION_ERROR",
        "key rotation error",
        "RESTART_VM",
        "CONTACT_SUPPORT",
    ),
    XidRow(
        152, "ROBUST_CHANNEL_DLA_SMMU_ERROR", "DLA memory unit error", "IGNORE", "CONTACT_SUPPORT"
    ),
    XidRow(153, "ROBUST_CHANNEL_DLA_TIMEOUT", "DLA timeout", "IGNORE", "CONTACT_SUPPORT"),
    XidRow(154, "GPU_RECOVERY_ACTION_CHANGED", "GPU recovery action changed", "XID_154"),
    XidRow(
        155,
        "NVLINK_SW_DEFINED_ERROR",
        "NVLink error defined by software",
        "RESET_GPU",
        "INVESTIGATE_SW_USER",
    ),
    XidRow(156, "RESOURCE_RETIREMENT_EVENT", "resource retired", "RESET_GPU", "IGNORE"),
    XidRow(
        157,
        "RESOURCE_RETIREMENT_FAILURE",
        "resource retirement failed",
        "IGNORE",
        "CONTACT_SUPPORT",
    ),
    XidRow(158, "GPU_FATAL_TIMEOUT", "fatal GPU timeout", "RESET_GPU", "CONTACT_SUPPORT"),
    XidRow(
        159,
        "ROBUST_CHANNEL_CHI_NON_DATA_ERROR",
        "CHI error without data",
        "CHECK_UVM",
        "SYMPATHETIC_REPORT_SOLO",
    ),
    XidRow(160, "CHANNEL_RETIREMENT_EVENT", "channel retired", "IGNORE", "INVESTIGATE_SW"),
    XidRow(
        161, "CHANNEL_RETIREMENT_FAILURE", "channel retirement failed", "IGNORE", "INVESTIGATE_SW"
    ),
    XidRow(162, "PSHC_REENGAGED", "power smoothing hardware engaged again", ""),
    XidRow(163, "PSHC_DISENGAGED", "power smoothing hardware disengaged", ""),
    XidRow(164, "PSHC_LOW_LIFETIME", "power smoothing hardware near its end of life", ""),
    XidRow(165, "PSHC_ZERO_LIFETIME", "power smoothing hardware at its end of life", ""),
    XidRow(166, "NVLINK_SECURE_CRYPTO_ERR", "unencrypted NVLink traffic", ""),
    XidRow(167, "PCIE_FATAL_TIMEOUT", "fatal PCIe timeout", ""),
    XidRow(168, "REDUCED_GPU_MEMORY_CAPACITY", "GPU memory capacity reduced", ""),
    XidRow(169, "SEC2_HALT_ERROR", "SEC2 microcontroller halt", ""),
    XidRow(170, "NVLINK_SECURE_OTHER", "NVLink interrupt in confidential mode", ""),
    XidRow(171, "UNCORRECTABLE_DRAM_ERROR", "uncorrectable DRAM error", ""),
    XidRow(172, "UNCORRECTABLE_SRAM_ERROR", "uncorrectable SRAM error", ""),
)
# Not described in the catalog, but drivers of older GPUs log them, and Azure's node health checks
# know them.
OLDER: tuple[XidRow, ...] = (
    XidRow(56, "DISPLAY_CHANNEL_EXCEPTION", "display engine error"),
    XidRow(57, "FB_LINK_TRAINING_FAILURE_ERROR", "memory interface training failed"),
    XidRow(58, "FB_MEMORY_ERROR", "error of the memory interface"),
    XidRow(61, "PMU_BREAKPOINT", "internal microcontroller breakpoint"),
    XidRow(65, "ROBUST_CHANNEL_NVENC1_ERROR", "video encoder 1 error"),
    XidRow(73, "ROBUST_CHANNEL_NVENC2_ERROR", "video encoder 2 error"),
    XidRow(81, "ROBUST_CHANNEL_VGA_SUBSYSTEM_ERROR", "VGA subsystem error"),
)
BY_NUMBER: dict[int, XidRow] = {row.number: row for row in (*XIDS, *OLDER)}


def xid(number: int) -> XidRow:
    """The row of an Xid; one that warns if the table has none."""
    return BY_NUMBER.get(number) or XidRow(number, "", "not in NVIDIA's Xid catalog")
