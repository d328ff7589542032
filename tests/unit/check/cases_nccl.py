"""Cases of the layers NCCL and launcher."""

from tree import environment

NCCL = {"nccl-gid-index": environment(NCCL_IB_GID_INDEX="3")}
