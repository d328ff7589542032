"""Further lines of the kernel log: of storage, tables, heat and the IOMMU."""

from kernel_prefixes import MLX

FAIL, WARN = "fail", "warn"
SMMU = "arm-smmu-v3 arm-smmu-v3.6.auto: "
LOST = "in progress operations using this service will wait for recovery to complete"

# rule: ((line, verdict, subject), ...), as in cases_kernel_log.
MORE = {
    "peermem-errors": (
        (
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping"
            " further processing",
            WARN,
            "",
        ),
    ),
    "network-tables-full": (
        ("neighbour: arp_cache: neighbor table overflow!", WARN, "arp"),
        ("neighbour: ndisc_cache: neighbor table overflow!", WARN, "ndisc"),
        ("ipv4: Neighbour table overflow.", WARN, ""),
        ("nf_conntrack: nf_conntrack: table full, dropping packet", WARN, ""),
        ("nf_conntrack: table full, dropping packet", WARN, ""),
        ("VFS: file-max limit 1000000 reached", WARN, ""),
    ),
    "crashed-in-nccl": (
        (
            "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp"
            " 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]",
            WARN,
            "pt_main_thread",
        ),
        (
            "traps: python3[9] general protection fault ip:7f09 sp:7f0a error:0 in"
            " libcuda.so.580.95.05[7f00+1000]",
            WARN,
            "python3",
        ),
    ),
    "iommu-faults": (
        (
            "DMAR: [DMA Write NO_PASID] Request device [43:00.0] fault addr 0x7cd80000 [fault"
            " reason 0x05] PTE Write access is not set",
            WARN,
            "GPU 1",
        ),
        (
            "DMAR: [DMA Read] Request device [0001:44:00.0] fault addr 9c000000 [fault reason 06]",
            WARN,
            "0001:44:00.0",
        ),
        (
            "nvidia 0000:43:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x001a"
            " address=0xfffc8000 flags=0x0050]",
            WARN,
            "GPU 1",
        ),
        (
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=44:00.0 domain=0x0012 address=0x0"
            " flags=0x0000]",
            WARN,
            "mlx5_1",
        ),
        (SMMU + "event: F_TRANSLATION client: 0000:43:00.0 sid: 0x100 ssid: 0x0", WARN, "GPU 1"),
        (SMMU + "event 0x10 received:", WARN, ""),
        ("AMD-Vi: Completion-Wait loop timed out", WARN, ""),
    ),
    "cpu-thermal": (
        (
            "mce: CPU2: Core temperature above threshold, cpu clock throttled (total events = 7)",
            WARN,
            "",
        ),
        ("CPU0: Package temperature above threshold, CPU clock throttled", WARN, ""),
        ("thermal thermal_zone0: critical temperature reached", FAIL, "thermal_zone0"),
    ),
    "cluster-file-system": (
        (
            "Lustre: scr-OST0003-osc-ffff88203810d800: Connection to scr-OST0003 (at"
            f" 10.0.0.7@o2ib) was lost; {LOST}",
            FAIL,
            "scr-OST0003",
        ),
        (
            f"Lustre: MGC10.0.0.1@o2ib: Connection to MGS (at 10.0.0.1@o2ib) was lost; {LOST}",
            FAIL,
            "MGC10.0.0.1@o2ib",
        ),
        (
            "LustreError: 167-0: scr-MDT0000-mdc-ffff882: This client was evicted by scr-MDT0000;"
            " in progress operations using this service will fail.",
            WARN,
            "scr-MDT0000",
        ),
        ("LustreError: 7:0:(osc_cache.c:2:osc_x()) ASSERTION( x ) failed: ", FAIL, ""),
        (
            "LustreError: 11-0: scr-MDT0000-mdc-ffff882: operation obd_ping to node 10.0.0.2@o2ib"
            " failed: rc = -107",
            WARN,
            "10.0.0.2@o2ib",
        ),
        (
            "LNet: 2431:0:(o2iblnd_cb.c:3174:kiblnd_check_conns()) Timed out tx for"
            " 10.0.0.2@o2ib: 4 seconds",
            WARN,
            "",
        ),
        (
            "mmfs: Error=MMFS_SYSTEM_UNMOUNT, ID=0xC954F85D, Tag=7: Unrecoverable file system"
            " operation error. Status code 5. Volume fs1",
            FAIL,
            "fs1",
        ),
        ("mmfs[711]: [X] The mmfs daemon is shutting down abnormally.", FAIL, ""),
        ("mmfs: [E] Disk failure. Volume fs1. rc = 5, physical volume = nsd3", FAIL, "fs1"),
        ("mmfs: [N] This node was expelled from the cluster", FAIL, ""),
        ("mmfs: Error=MMFS_LONGDISKIO, ID=0x478FAB9E, Tag=7", WARN, ""),
    ),
}
FINE_MORE = {
    "peermem-errors": ("nvidia_peermem: module uses symbols from proprietary module nvidia",),
    "network-tables-full": (
        "nf_conntrack: default automatic helper assignment has been turned off",
        MLX + "Rate limit: 127 rates are supported",
    ),
    "crashed-in-nccl": (
        "python3[77]: segfault at 0 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in"
        " libc.so.6[7f7c7ac00000+d3d000]",
    ),
    "iommu-faults": (
        "DMAR: DRHD base: 0x000000d37fc000 flags: 0x0",
        "DMAR: IOMMU enabled",
        "nvidia 0000:43:00.0: Adding to iommu group 7",
        "AMD-Vi: Interrupt remapping enabled",
        SMMU + "ias 48-bit, oas 48-bit (features 0x001c1fff)",
    ),
    "cpu-thermal": ("mce: CPU2: Core temperature/speed normal", "thermal_sys: Registered governor"),
    "cluster-file-system": (
        "Lustre: Mounted scr-client",
        "Lustre: Lustre: Build Version: 2.15.3",
        "Lustre: scr-OST0003-osc-ffff88203810d800: Connection restored to 10.0.0.7@o2ib",
        "LNet: Added LNI 10.0.0.9@o2ib [8/256/0/180]",
        "mmfs26: module license 'Proprietary' taints kernel.",
        "mmfs: [I] Mounted file system fs1",
    ),
}
