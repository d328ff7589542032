"""Lines of the kernel log in the words of drivers, and which rule judges them how and on what."""

from healthy_gpu import logged
from kernel_prefixes import HW, MLX
from more_kernel_log import MORE

FAIL, WARN, PASS = "fail", "warn", "pass"


# rule: ((line, verdict, subject), ...). The GPU at 0000:43 is GPU 1, the adapter at 0000:44 is
# mlx5_1.
FIRES = {
    "gpu-fell-off-bus": (
        (
            (
                "NVRM: The NVIDIA GPU 0000:43:00.0 NVRM: (PCI ID: 10de:2330) installed in this"
                " system has NVRM: fallen off the bus and is not responding to commands."
            ),
            FAIL,
            "GPU 1",
        ),
        ("NVRM: GPU 0000:e4:00.0: GPU has fallen off the bus.", FAIL, "0000:e4:00.0"),
        ("NVRM: fallen off the bus and is not responding to commands.", FAIL, ""),
    ),
    "gpu-driver-start": (
        ("NVRM: GPU 0000:43:00.0: RmInitAdapter failed! (0x62:0x65:1792)", FAIL, "GPU 1"),
        ("NVRM: GPU 0000:43:00.0: rm_init_adapter failed, device minor number 1", FAIL, "GPU 1"),
        (
            "NVRM: GPU 0000:43:00.0: GPU does not have the necessary power cables connected.",
            FAIL,
            "GPU 1",
        ),
        ("NVRM: rm_init_adapter(0) failed", FAIL, ""),
        ("NVRM: RmInitAdapter failed! (0x26:0x56:1463)", FAIL, ""),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).", FAIL, ""),
        ("NVRM: None of the NVIDIA devices were initialized.", FAIL, ""),
        ("nvidia: probe of 0000:43:00.0 failed with error -1", FAIL, "GPU 1"),
        ("nvidia 0000:43:00.0: probe with driver nvidia failed with error -1", FAIL, "GPU 1"),
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", FAIL, ""),
    ),
    "fabric-manager-failed": (
        ("systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.", FAIL, ""),
        (
            (
                "systemd[1]: nvidia-fabricmanager.service: Main process exited, code=exited,"
                " status=1/FAILURE"
            ),
            FAIL,
            "",
        ),
    ),
    "nvlink-driver-errors": (
        (
            ("NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!"),
            FAIL,
            "",
        ),
        (
            (
                "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask"
                " failed!"
            ),
            FAIL,
            "",
        ),
        (
            "NVRM: GPU3 knvlinkSetDegradedMode_IMPL: GPU3 marked Degraded. Error originated on"
            " linkId 7!",
            FAIL,
            "",
        ),
        ("NVRM: knvlinkSendInbandData_IMPL: Failed to send inband data: 65", WARN, ""),
        ("NVRM: knvlinkSendInbandData_IMPL: Timed out retrying to send inband data", WARN, ""),
    ),
    "nic-firmware-health": (
        (
            MLX + "poll_health:801:(pid 0): device's health compromised - reached miss count",
            FAIL,
            "mlx5_1",
        ),
        (
            MLX + "print_health_info:431:(pid 0): Health issue observed, firmware internal error,"
            " severity(3) ERROR:",
            FAIL,
            "mlx5_1",
        ),
        (
            MLX
            + "print_health_info:431:(pid 0): Health issue observed, High temperature, severity(4)"
            " WARNING:",
            WARN,
            "mlx5_1",
        ),
        (
            MLX + "mlx5_health_try_recover:338:(pid 5553): health recovery flow aborted, PCI reads"
            " still not working",
            FAIL,
            "mlx5_1",
        ),
        (
            MLX + "print_health_info:389:(pid 0): synd 0x8: unrecoverable hardware error",
            FAIL,
            "mlx5_1",
        ),
    ),
    "nic-firmware-commands": (
        (MLX + "mlx5_load_one failed with error code -22", FAIL, "mlx5_1"),
        (
            MLX + "probe_one:1772:(pid 900): mlx5_init_one failed with error code -110",
            FAIL,
            "mlx5_1",
        ),
        ("mlx5_core: probe of 0000:44:00.0 failed with error -22", FAIL, "mlx5_1"),
        (
            MLX
            + "wait_func:1090:(pid 9): ACCESS_REG(0x805) timeout. Will cause a leak of a command"
            " resource",
            FAIL,
            "mlx5_1",
        ),
        (
            MLX + "wait_func_handle_exec_timeout:1128:(pid 9): cmd[0]: CREATE_UCTX(0xa04) No done"
            " completion",
            WARN,
            "mlx5_1",
        ),
    ),
    "nic-slot-power": (
        (
            MLX
            + "mlx5_pcie_event:299:(pid 9): Detected insufficient power on the PCIe slot (27W).",
            WARN,
            "mlx5_1",
        ),
    ),
    "nic-module-events": (
        (
            MLX + "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable"
            " error, High Temperature",
            WARN,
            "mlx5_1",
        ),
        (
            (
                "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable"
                " error, Bus stuck"
            ),
            WARN,
            "",
        ),
        (
            MLX + "temp_warn:182:(pid 0): High temperature on sensors with bit set 0x0 0x1",
            WARN,
            "mlx5_1",
        ),
    ),
    "netdev-tx-timeout": (
        ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out", WARN, "eth0"),
        (
            (
                "mlx5_core 0000:44:00.0 eth0: NETDEV WATCHDOG: CPU: 5: transmit queue 3 timed out"
                " 5032 ms"
            ),
            WARN,
            "eth0",
        ),
        ("mlx5_core 0000:44:00.0 eth0: TX timeout detected", WARN, "eth0"),
    ),
    "rdma-driver-errors": (
        (
            (
                "infiniband rdmap16s27: The device didn't send any completion for admin cmd"
                " CREATE_QP(1) status 0 (ctx 0x1)"
            ),
            FAIL,
            "rdmap16s27",
        ),
        ("efa 0000:44:00.0: Reset indication didn't turn off", FAIL, "mlx5_1"),
        ("bnxt_en 0000:44:00.0 ens1f0np0: Firmware fatal reset event, data1: 0x1", FAIL, "mlx5_1"),
        ("bnxt_en 0000:44:00.0: QPLIB: cmdq[0x4b9]=0x15 timedout (20000)msec", WARN, "mlx5_1"),
        ("ice 0000:44:00.0: Rebuild failed, unload and reload driver", FAIL, "mlx5_1"),
    ),
    "pcie-aer-logged": (
        (
            "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:43:00.0",
            FAIL,
            "GPU 1",
        ),
        (
            (
                "pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error message received from"
                " 0000:43:00.0"
            ),
            FAIL,
            "GPU 1",
        ),
        (
            "pcieport 0000:00:1c.4: AER: Uncorrected (Fatal) error received: id=00e4",
            FAIL,
            "0000:00:1c.4",
        ),
        (
            (
                "nvidia 0000:43:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal),"
                " type=Inaccessible"
            ),
            FAIL,
            "GPU 1",
        ),
        (
            (
                "nvidia 0000:43:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal),"
                " type=Transaction Layer"
            ),
            WARN,
            "GPU 1",
        ),
        (
            (
                "pcieport 0000:00:01.0: AER: Multiple Uncorrected (Non-Fatal) error received:"
                " 0000:44:00.0"
            ),
            WARN,
            "mlx5_1",
        ),
        ("pcieport 0000:40:01.0: AER: device recovery failed", FAIL, "0000:40:01.0"),
        ("nvidia 0000:43:00.0: AER: can't recover (no error_detected callback)", FAIL, "GPU 1"),
        (
            "pcieport 0000:40:01.0: DPC: containment event, status:0x1f01 source:0x0000",
            FAIL,
            "0000:40:01.0",
        ),
    ),
    "hardware-errors-logged": (
        (
            "EDAC MC3: 1 UE memory read error on CPU_SrcID#0_MC#3_Chan#0_DIMM#0 (channel:0 slot:0)",
            FAIL,
            "MC3",
        ),
        (HW + "CPU 12: Machine Check: 0 Bank 5: bea0000000000108", FAIL, "CPU 12"),
        (HW + "CPU 3: Machine Check Exception: 5 Bank 9: ee00000000800400", FAIL, "CPU 3"),
        ("Memory failure: 0x7740c0: recovery action for dirty page: Recovered", FAIL, ""),
        (
            "MCE: Killing python:4711 due to hardware memory corruption fault at 7f0000000000",
            FAIL,
            "",
        ),
        ("mce: Uncorrected hardware memory error in user-access at 1f9ad10c0", FAIL, ""),
        ("[Hardware Error]: Uncorrected, software restartable error.", FAIL, ""),
        ("[Hardware Error]: Deferred error, no action required.", WARN, ""),
        ("EDAC MC1: 128 CE memory read error on CPU_SrcID#1_Ha#0_Chan#1_DIMM#1", WARN, "MC1"),
        ("{1}[Hardware Error]: event severity: fatal", FAIL, ""),
        ("{1}[Hardware Error]: event severity: recoverable", WARN, ""),
    ),
    "oom-kill": (
        ("Out of memory: Killed process 4711 (slurmd) total-vm:1kB, anon-rss:1kB", WARN, "slurmd"),
        (
            "Out of memory: Kill process 4711 (Plex Media) score 900 or sacrifice child",
            WARN,
            "Plex Media",
        ),
        (
            "Out of memory (oom_kill_allocating_task): Killed process 4711 (python3) total-vm:1kB",
            WARN,
            "python3",
        ),
    ),
    "cpu-lockup": (
        ("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]", WARN, "CPU#18"),
        ("BUG: soft lockup - CPU#5 stuck for 26 seconds! [bash:537]", WARN, "CPU#5"),
        ("watchdog: BUG: soft lockup - CPU#11 stuck for 94s!", WARN, "CPU#11"),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 3", FAIL, "cpu 3"),
        ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", WARN, ""),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", WARN, ""),
    ),
    "hung-task": (
        ("INFO: task kcompactd1:1177 blocked for more than 120 seconds.", WARN, "kcompactd1"),
        (
            "INFO: task kworker/13:2:4055883 blocked for more than 245 seconds.",
            WARN,
            "kworker/13:2",
        ),
        (
            "INFO: task jfsmount:136986 blocked in I/O wait for more than 122 seconds.",
            WARN,
            "jfsmount",
        ),
    ),
    "kernel-oops": (
        ("BUG: kernel NULL pointer dereference, address: 0000000000000014", WARN, ""),
        (
            "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP",
            WARN,
            "",
        ),
        ("kernel BUG at mm/slub.c:379!", WARN, ""),
        ("Kernel panic - not syncing: Fatal exception in interrupt", FAIL, ""),
    ),
    "disk-errors": (
        ("nvme nvme4: Disabling device after reset failure: -19", FAIL, "nvme4"),
        ("nvme nvme1: Removing after probe failure status: -19", FAIL, "nvme1"),
        ("md/raid1:md0: Disk failure on nvme0n1p1, disabling device.", FAIL, "nvme0n1p1"),
        ("block nvme0n1: no available path - failing I/O", FAIL, "nvme0n1"),
        (
            "I/O error, dev sda, sector 123456 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
            FAIL,
            "sda",
        ),
        ("blk_update_request: critical medium error, dev sdb, sector 1", FAIL, "sdb"),
        (
            "Buffer I/O error on dev dm-0, logical block 1308098575, lost async page write",
            FAIL,
            "dm-0",
        ),
        ("sd 0:0:0:0: [sdc] tag#3 rejecting I/O to offline device", FAIL, "sdc"),
        (
            "nvme nvme2: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
            WARN,
            "nvme2",
        ),
        ("kworker/u203:1: attempt to access beyond end of device", WARN, ""),
        (
            "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
            WARN,
            "nvme4",
        ),
    ),
    "filesystem-errors": (
        ("EXT4-fs (sda1): Remounting filesystem read-only", FAIL, "sda1"),
        ("EXT4-fs (dm-0): I/O error while writing superblock", FAIL, "dm-0"),
        (
            (
                "EXT4-fs error (device vda): ext4_lookup:1855: inode #1234: comm bash: deleted"
                " inode referenced: 5678"
            ),
            FAIL,
            "vda",
        ),
        (
            (
                "XFS (dm-0): Metadata corruption detected at xfs_dir3_leaf_verify+0xa8/0xe0 [xfs],"
                " block 0x178"
            ),
            FAIL,
            "dm-0",
        ),
        ("XFS (nvme0n1p1): log I/O error -5", FAIL, "nvme0n1p1"),
        ("XFS (dm-0): Filesystem has been shut down due to log error (0x2).", FAIL, "dm-0"),
        ("BTRFS info (device sdb1: state EA): forced readonly", FAIL, "sdb1"),
        (
            (
                "BTRFS: error (device sdb1) in btrfs_commit_transaction:2465: errno=-5 IO failure"
                " (Transaction aborted)"
            ),
            FAIL,
            "sdb1",
        ),
        ("BTRFS: Remounting filesystem read-only", FAIL, ""),
    ),
    "nfs-not-responding": (
        ("nfs: server fs.tcblab not responding, still trying", FAIL, "fs.tcblab"),
        ("nfs: server fd00::17%ib0 not responding, still trying", FAIL, "fd00::17%ib0"),
        ("nfs: server 127.0.0.1 not responding, timed out", WARN, "127.0.0.1"),
        ("NFS: nfs4_reclaim_open_state: Lock reclaim failed!", WARN, ""),
    ),
}
FIRES |= MORE


KERNEL_LOG = {name: logged(lines[0][0]) for name, lines in FIRES.items()}
