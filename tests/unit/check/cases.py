"""For each check a change that makes it fire on the healthy server, and for some the servers on
which it passes.

A case is a change, or (server, change) where only another server has what is checked. MORE has
further variants of that server by title: a change, two changes with a minute between them, or
another server.
"""

from cases_gpu import GPU
from cases_kernel_log import KERNEL_LOG
from cases_nccl import NCCL
from cases_nic import NIC
from cases_os import OS
from cases_pcie import PCIE
from more_gpu import MORE_GPU
from more_launcher import MORE_LAUNCHER
from more_nccl import MORE_NCCL
from more_nic import MORE_NIC
from more_nvlink import MORE_NVLINK
from more_os import MORE_CPU, MORE_KERNEL, MORE_LIMITS
from more_pcie import MORE_PCIE
from more_roce import MORE_ROCE
from tree import Change, Tree

Variant = Change | Tree | tuple[Change, Change]
CASES = GPU | PCIE | NIC | OS | NCCL | KERNEL_LOG
MORE: dict[str, dict[str, Variant]] = {
    **MORE_PCIE,
    **MORE_NVLINK,
    **MORE_ROCE,
    **MORE_NIC,
    **MORE_GPU,
    **MORE_KERNEL,
    **MORE_LIMITS,
    **MORE_CPU,
    **MORE_NCCL,
    **MORE_LAUNCHER,
}
