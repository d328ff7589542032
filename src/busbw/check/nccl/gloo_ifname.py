"""The interface of Gloo, compared with that of NCCL."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, no_environment, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.selection import parse
from busbw.check.nccl.settings import READS, settings
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

GLOO, NCCL, NET = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "/sys/class/net"

ROW = CheckRow(
    id="BW190",
    name="gloo-socket-ifname",
    layer=Layer.NCCL,
    title=f"{GLOO}, compared with {NCCL}",
    right="not set, or an exact name of this host that NCCL may use too",
    why="PyTorch uses Gloo for CPU groups in addition to NCCL. Gloo takes exact names, without prefixes, = or ^. A name that does not "
    "exist on the host prevents the start. An interface other than NCCL's may not reach the other hosts.",
    fix=f"export {GLOO}={{netdev}}",
    stays="set it in the job script",
    reads=(*READS, NET),
    sources=("PyTorch documentation, torch.distributed, common environment variables",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Both variables, compared with the interfaces of this host."""
    every = settings(machine)
    if every is None:
        yield no_environment()
        return
    gloo, nccl = every.get(GLOO), every.get(NCCL)
    if gloo is None:
        yield passed("", f"{GLOO} is not set: Gloo takes the interface of the host's own name")
        return
    names = (*machine.interfaces, "lo") if machine.interfaces else ()
    evidence = [gloo.evidence(), *([nccl.evidence()] if nccl else []), Evidence(NET, ", ".join(names) or "no interface")]
    chosen = parse(nccl.value).chosen(names) if nccl else names
    wanted = gloo.value.split(",")
    absent = [name for name in wanted if name not in names]
    if not names:
        yield not_offered("", f"{gloo.text}: no interface is visible here", *evidence)
    elif absent:
        other = gloo.to(chosen[0]) if chosen and chosen[0] != "lo" else gloo.unset
        yield failed("", f"{gloo.text}: this host has no interface {', '.join(absent)}", *evidence, fix=other)
    elif nccl and not set(wanted) & set(chosen):
        fix = gloo.to(chosen[0]) if chosen else nccl.unset
        yield warned("", f"{gloo.text} is not among the interfaces of {nccl.text}", *evidence, fix=fix)
    else:
        yield passed("", f"{gloo.text} is an interface of this host", *evidence)


CHECK = Check(ROW, look)
