"""A fixed GID index."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Evidence, Found, Layer

VARIABLE = "NCCL_IB_GID_INDEX"

ROW = CheckRow(
    id="BW165",
    name="nccl-gid-index",
    layer=Layer.NCCL,
    title=f"{VARIABLE} in the environment",
    right="not set: NCCL 2.21 and newer find the RoCE v2 GID themselves",
    why="The order of GIDs differs between hosts and changes when an interface was down. A fixed index then names one of RoCE v1 or none.",
    fix=f"unset {VARIABLE}",
    stays="remove it from the job script, /etc/nccl.conf and ~/.nccl.conf",
    reads=("environment",),
    sources=("NCCL user guide, NCCL_IB_GID_INDEX",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, and on this host the type of the GID that it names."""
    if machine.environment is None:
        yield no_environment()
        return
    value = machine.environment.get(VARIABLE)
    if value is None:
        yield passed("", f"{VARIABLE} is not set")
        return
    evidence = [Evidence(f"${VARIABLE}", value, "not set")]
    if not machine.roce_ports:
        yield skipped(f"{VARIABLE}={value}, but there is no RoCE port")
        return
    for port in machine.roce_ports:
        path = f"{port.path}/gid_attrs/types/{value}"
        evidence.append(Evidence(path, machine.text(path) or "no such GID", "RoCE v2"))
    yield warned("", f"{VARIABLE}={value} fixes the index of the GID on all ports", *evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
