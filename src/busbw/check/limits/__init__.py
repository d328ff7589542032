"""Limits of processes."""

from busbw.check.base import Check
from busbw.check.limits import (
    allowed_cpus,
    cgroup_memory,
    cgroup_pids,
    cpu_quota,
    disk_space,
    memlock,
    open_files,
    process_count,
    shm_size,
    stack,
)

CHECKS: tuple[Check, ...] = (
    memlock.CHECK,
    open_files.CHECK,
    stack.CHECK,
    process_count.CHECK,
    shm_size.CHECK,
    disk_space.CHECK,
    cgroup_memory.CHECK,
    allowed_cpus.CHECK,
    cpu_quota.CHECK,
    cgroup_pids.CHECK,
)
