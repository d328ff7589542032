"""Rules of launchers' command lines: found without running them."""

from busbw.check.command import (
    binding,
    btl,
    dashes,
    export,
    gpus,
    host_list,
    interfaces,
    mpi_version,
    per_node,
    rendezvous,
    repeated,
    root,
    sizes,
    slots,
    spread,
    srun_mpi,
    visible_devices,
)
from busbw.check.command.base import Rule

CHECKS: tuple[Rule, ...] = (
    host_list.CHECK,
    slots.CHECK,
    spread.CHECK,
    export.CHECK,
    interfaces.CHECK,
    mpi_version.CHECK,
    root.CHECK,
    binding.CHECK,
    visible_devices.CHECK,
    per_node.CHECK,
    srun_mpi.CHECK,
    rendezvous.CHECK,
    sizes.CHECK,
    gpus.CHECK,
    repeated.CHECK,
    btl.CHECK,
    dashes.CHECK,
)
