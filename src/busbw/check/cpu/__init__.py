"""CPUs and memory."""

from busbw.check.base import Check
from busbw.check.cpu import (
    clocksource,
    governor,
    hugepages,
    irq_affinity,
    isolated,
    memory_errors,
    memory_free,
    numa_memory,
    numa_policy,
    online,
)

CHECKS: tuple[Check, ...] = (
    governor.CHECK,
    clocksource.CHECK,
    irq_affinity.CHECK,
    online.CHECK,
    isolated.CHECK,
    numa_memory.CHECK,
    numa_policy.CHECK,
    hugepages.CHECK,
    memory_free.CHECK,
    memory_errors.CHECK,
)
