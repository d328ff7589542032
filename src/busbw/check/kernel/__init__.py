"""Modules and settings of the kernel and operating system."""

from busbw.check.base import Check
from busbw.check.kernel import (
    firewall,
    gdrcopy,
    gpudirect_path,
    numa_balancing,
    port_range,
    rdma_access,
    rdma_modules,
    reads_answer,
    removeipc,
    stuck_processes,
    tcp_congestion,
    tcp_memory,
    thp,
    time_sync,
    yama_ptrace,
    zone_reclaim,
)

CHECKS: tuple[Check, ...] = (
    gpudirect_path.CHECK,
    gdrcopy.CHECK,
    rdma_modules.CHECK,
    rdma_access.CHECK,
    removeipc.CHECK,
    numa_balancing.CHECK,
    zone_reclaim.CHECK,
    thp.CHECK,
    tcp_memory.CHECK,
    tcp_congestion.CHECK,
    port_range.CHECK,
    time_sync.CHECK,
    firewall.CHECK,
    yama_ptrace.CHECK,
    stuck_processes.CHECK,
    reads_answer.CHECK,
)
