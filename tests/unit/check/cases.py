"""For each check a change that makes it fire on the healthy server, and for some the servers on which it passes.

A case is a change, or (server, change) where only another server has what is checked.
"""

from cases_gpu import GPU
from cases_kernel_log import KERNEL_LOG
from cases_nccl import NCCL
from cases_nic import NIC
from cases_os import OS
from cases_pcie import PCIE
from tree import Change, Tree

MORE: dict[str, dict[str, Change | Tree]] = {}
CASES = GPU | PCIE | NIC | OS | NCCL | KERNEL_LOG
