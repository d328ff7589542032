"""NCCL and launchers of the healthy server: nothing set, one NCCL, Open MPI 5, a name that
resolves, Slurm with PMIx.
"""

import json

from tree import Tree

HOME = "/home/user"
MISSING = "no such file or directory"
HOSTS = "127.0.0.1 localhost\n10.1.0.1 gpu-1.cluster gpu-1"
SRUN = (
    "MPI plugin types are...\n"
    "\tnone\n"
    "\tcray_shasta\n"
    "\tpmi2\n"
    "\tpmix\n"
    "specific pmix plugin versions available: pmix_v4"
)


def library(path: str, version: str, source: str = "Python package") -> dict[str, str]:
    """One libnccl."""
    return {"path": path, "version": version, "by": source}


def add(tree: Tree) -> None:
    """To the tree."""
    tree.call("home", HOME).error("/etc/nccl.conf", MISSING).error(f"{HOME}/.nccl.conf", MISSING)
    tree.call(
        "nccl-libraries",
        json.dumps([library("/opt/venv/lib/nvidia/nccl/lib/libnccl.so.2", "2.27.7")]),
    )
    tree.call("mpirun", json.dumps({"path": "/usr/bin/mpirun", "version": "5.0.8", "error": ""}))
    tree.file("/etc/hosts", HOSTS).call(
        "own-addresses", "10.1.0.1       STREAM gpu-1.cluster\n10.1.0.1       DGRAM"
    )
    tree.call("reverse-lookups", '{"::ffff:10.1.0.1": 0.003, "::ffff:127.0.0.1": 0.001}')
    tree.call("srun-mpi", SRUN).call(
        "ssh-login",
        json.dumps({"ssh": "/usr/bin/ssh", "agent": False, "keys": {"id_ed25519": 0o600}}),
    )
