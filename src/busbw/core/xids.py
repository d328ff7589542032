"""The table of Xids: what NVIDIA's driver reports about a GPU, and what NVIDIA says to do about it.

Source: NVIDIA's Xid catalog, docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, for
Ampere and newer, as of 2025-10-29: 172 numbers, of which it describes these 109. Mnemonics and
actions are NVIDIA's.
"""

from busbw.core.xid_effects import Effect, XidRow

__all__ = ["BY_NUMBER", "OLDER", "XIDS", "Effect", "XidRow", "xid"]
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


def _engine(number: int, engine: str, title: str) -> XidRow:
    """An error of a copy engine or codec."""
    return XidRow(
        number, f"ROBUST_CHANNEL_{engine}_ERROR", f"{title} error", "RESTART_APP", "CONTACT_SUPPORT"
    )


def _nvlink5(number: int, unit: str) -> XidRow:
    """An error of a unit of NVLink 5."""
    workflow = "WORKFLOW_NVLINK5_ERR"
    return XidRow(
        number, f"NVLINK_{unit.upper()}_ERROR", f"NVLink {unit} error", workflow, workflow
    )


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
    _engine(39, "CE0", "copy engine 0"),
    _engine(40, "CE1", "copy engine 1"),
    _engine(41, "CE2", "copy engine 2"),
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
    _engine(68, "NVDEC0", "video decoder 0"),
    XidRow(
        69,
        "ROBUST_CHANNEL_GR_CLASS_ERROR",
        "graphics engine class error",
        "RESTART_APP",
        "CHECK_APP/CUDA",
    ),
    _engine(70, "CE3", "copy engine 3"),
    _engine(71, "CE4", "copy engine 4"),
    _engine(72, "CE5", "copy engine 5"),
    XidRow(74, "NVLINK_ERROR", "NVLink error", "WORKFLOW_NVLINK_ERR", "CONTACT_SUPPORT"),
    _engine(75, "CE6", "copy engine 6"),
    _engine(76, "CE7", "copy engine 7"),
    _engine(77, "CE8", "copy engine 8"),
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
    _engine(82, "NVJPG0", "JPEG decoder 0"),
    _engine(83, "NVDEC1", "video decoder 1"),
    _engine(84, "NVDEC2", "video decoder 2"),
    _engine(85, "CE9", "copy engine 9"),
    XidRow(
        86, "ROBUST_CHANNEL_OFA0_ERROR", "optical flow exception", "RESTART_APP", "CONTACT_SUPPORT"
    ),
    _engine(88, "NVDEC3", "video decoder 3"),
    _engine(89, "NVDEC4", "video decoder 4"),
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
    _engine(96, "NVDEC5", "video decoder 5"),
    _engine(97, "NVDEC6", "video decoder 6"),
    _engine(98, "NVDEC7", "video decoder 7"),
    _engine(99, "NVJPG1", "JPEG decoder 1"),
    _engine(100, "NVJPG2", "JPEG decoder 2"),
    _engine(101, "NVJPG3", "JPEG decoder 3"),
    _engine(102, "NVJPG4", "JPEG decoder 4"),
    _engine(103, "NVJPG5", "JPEG decoder 5"),
    _engine(104, "NVJPG6", "JPEG decoder 6"),
    _engine(105, "NVJPG7", "JPEG decoder 7"),
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
    _engine(126, "CE10", "copy engine 10"),
    _engine(127, "CE11", "copy engine 11"),
    _engine(128, "CE12", "copy engine 12"),
    _engine(129, "CE13", "copy engine 13"),
    _engine(130, "CE14", "copy engine 14"),
    _engine(131, "CE15", "copy engine 15"),
    _engine(132, "CE16", "copy engine 16"),
    _engine(133, "CE17", "copy engine 17"),
    _engine(134, "CE18", "copy engine 18"),
    _engine(135, "CE19", "copy engine 19"),
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
    _nvlink5(144, "SAW"),
    _nvlink5(145, "RLW"),
    _nvlink5(146, "TLW"),
    _nvlink5(147, "TREX"),
    _nvlink5(148, "NVLPW_CTRL"),
    _nvlink5(149, "NETIR"),
    _nvlink5(150, "MSE"),
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
BY_NUMBER: dict[int, XidRow] = {row.number: row for row in (*XIDS, *OLDER)}


def xid(number: int) -> XidRow:
    """The row of an Xid; one that warns if the table has none."""
    return BY_NUMBER.get(number) or XidRow(number, "", "not in NVIDIA's Xid catalog")
