"""Lines of the kernel log that no rule names, of the same families as those that one does."""

from kernel_prefixes import HW, MLX
from more_kernel_log import FINE_MORE

FINE = {
    "gpu-fell-off-bus": (
        "NVRM: GPU 0000:43:00.0: GPU serial number is 1653723052734.",
        "NVRM: GPU at PCI:0000:43:00: GPU-b6c3b2be",
    ),
    "gpu-driver-start": (
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
    ),
    "fabric-manager-failed": (
        "systemd[1]: Started nvidia-fabricmanager.service - NVIDIA fabric manager service.",
        (
            "systemd[1]: nvidia-fabricmanager.service: Main process exited, code=exited,"
            " status=0/SUCCESS"
        ),
    ),
    "nvlink-driver-errors": (
        "NVRM: knvlinkSendInbandData_IMPL: Failed to send inband data: 0",
        "NVRM: knvlinkSetUniqueFabricBaseAddress_GV100: Fabric base addr 1000000000 is assigned to"
        " GPU 0",
    ),
    "nic-firmware-health": (
        MLX + "firmware version: 28.41.1000",
        MLX + "print_health_info:435:(pid 0): assert_var[0] 0x0521945b",
    ),
    "nic-firmware-commands": (
        MLX + "mlx5_cmd_out_err:838:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, status bad"
        " resource(0x5), syndrome (0x305684), err(-22)",
        MLX
        + "wait_func_handle_exec_timeout:1113:(pid 3122): cmd[0]: CREATE_CQ(0x400) recovered after"
        " timeout",
    ),
    "nic-slot-power": (
        MLX + "mlx5_pcie_event:303:(pid 9): PCIe slot advertised sufficient power (75W).",
    ),
    "nic-module-events": (MLX + "Port module event: module 0, Cable plugged",),
    "netdev-tx-timeout": ("mlx5_core 0000:44:00.0 eth0: Link up",),
    "rdma-driver-errors": (
        "bnxt_en 0000:3b:00.0 p1p1: Firmware reset request successful.",
        "infiniband mlx5_1: set_roce_addr:100: Admin queue is closed",
    ),
    "pcie-aer-logged": (
        "pcieport 0000:00:01.0: AER: Corrected error received: 0000:43:00.0",
        (
            "nvidia 0000:43:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer,"
            " (Receiver ID)"
        ),
        "pcieport 0000:00:01.0: AER: enabled with IRQ 28",
        "pcieport 0000:00:01.0: DPC: enabled with IRQ 28",
    ),
    "hardware-errors-logged": (
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
        "EDAC MC0: 0 UE memory read error",
        HW + "CPU 0: Machine Check: 0 Bank 0: 9000004000010005",
        HW + "Machine check events logged",
        "{1}[Hardware Error]: event severity: corrected",
        "RAS: Correctable Errors collector initialized.",
    ),
    "oom-kill": ("oom_reaper: reaped process 23793 (leaker), now anon-rss:0kB",),
    "cpu-lockup": (
        "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
        "rcu: Hierarchical RCU implementation.",
    ),
    "hung-task": ('"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',),
    "kernel-oops": (
        "WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 dev_x+0x1/0x2",
        "Kernel command line: oops=panic",
    ),
    "disk-errors": (
        "nvme nvme0: Shutdown timeout set to 10 seconds",
        "I/O error, dev fd0, sector 0 op 0x0:(READ)",
        "blk_update_request: I/O error, dev sr0, sector 0",
        "md/raid1:md0: active with 2 out of 2 mirrors",
    ),
    "filesystem-errors": (
        "EXT4-fs (vda): mounted filesystem with ordered data mode. Quota mode: none.",
        "XFS (dm-0): Mounting V5 Filesystem 82ccfb3f",
        "XFS (dm-0): Ending clean mount",
        "EXT4-fs (md127p3): re-mounted 0f3cd65a-338b r/w. Quota mode: none.",
    ),
    "nfs-not-responding": ("nfs: server 10.0.0.5 OK", "NFS: Registering the id_resolver key type"),
}
FINE |= FINE_MORE
