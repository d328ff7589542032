"""What starts ranks."""

from busbw.check.base import Check
from busbw.check.launcher import (
    hostname_loopback,
    hostname_resolves,
    mpi_interfaces,
    mpi_transport,
    mpi_variables,
    mpijob,
    mpirun_isolated,
    mpirun_version,
    reverse_lookup,
    slurm_mpi,
    ssh_keys,
)

CHECKS: tuple[Check, ...] = (
    mpirun_version.CHECK,
    mpirun_isolated.CHECK,
    hostname_loopback.CHECK,
    hostname_resolves.CHECK,
    reverse_lookup.CHECK,
    ssh_keys.CHECK,
    slurm_mpi.CHECK,
    mpi_interfaces.CHECK,
    mpi_variables.CHECK,
    mpijob.CHECK,
    mpi_transport.CHECK,
)
