"""A fixed GID index."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each, known, version
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gids import V2

VARIABLE = "NCCL_IB_GID_INDEX"
DYNAMIC = (2, 21)  # from this version on NCCL finds the index itself

ROW = CheckRow(
    id="BW165",
    name="nccl-gid-index",
    layer=Layer.NCCL,
    title=f"{VARIABLE} in the environment",
    right="not set: NCCL 2.21 and newer find the RoCE v2 GID themselves",
    why="The order of GIDs differs between hosts, and changes after an interface was down. A fixed index may then point to a RoCE v1 GID "
    "or to none.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "/sys/class/infiniband/*/ports/*/gid_attrs/types/*"),
    sources=("NCCL user guide, NCCL_IB_GID_INDEX",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, and on this host the type of the GID that it names."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if not machine.roce_ports and known(machine):
        return skipped(f"{setting.text}, but there is no RoCE port")
    types = {f"{port.path}/gid_attrs/types/{setting.value}": port for port in machine.roce_ports}
    evidence = [setting.evidence("not set"), *(_seen(path, machine.text(path)) for path in types)]
    old = version(machine) and version(machine) < DYNAMIC
    if old and all(one.seen == V2 for one in evidence[1:]):
        return passed("", f"{setting.text} is a RoCE v2 GID on all ports; NCCL before 2.21 needs it", *evidence)
    return warned("", f"{setting.text} fixes the GID index on all ports", *evidence, fix=setting.unset)


def _seen(path: str, kind: str | None) -> Evidence:
    return Evidence(path, kind or "no such GID", "" if kind == V2 else V2)


CHECK = Check(ROW, look)
