"""A program of nccl-tests, and a machine that starts command lines."""

from healthy import healthy

from busbw.check.machine import Machine

PERF = "./build/all_reduce_perf -b 8 -e 8G -f 2 -g 1"


def machine(version="5.0.8", interfaces=(), host="gpu-1", euid="0", busbw="", **variables):
    """The healthy server with a version of Open MPI, more interfaces, a name, and variables.

    `busbw` is the path of that program on it.
    """
    tree = (
        healthy()
        .update("mpirun", version=version)
        .update("environment", **variables)
        .file("/proc/sys/kernel/hostname", host)
    )
    tree.call("euid", euid)
    tree.call("busbw on PATH", busbw)
    for name in interfaces:
        tree.file(f"/sys/class/net/{name}/operstate", "up")
    return Machine(tree.source())
