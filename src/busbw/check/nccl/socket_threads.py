"""Threads and connections of NCCL's TCP sockets."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, settings
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

THREADS, SOCKETS, DISABLE = "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_IB_DISABLE"
MOST_THREADS, MOST = 16, 64

ROW = CheckRow(
    id="BW174",
    name="nccl-socket-threads",
    layer=Layer.NCCL,
    title=f"{THREADS} and {SOCKETS}",
    right=f"at most {MOST_THREADS} threads, and at most {MOST} sockets in total; 4 x 4 is a good start for 100 Gbit/s",
    why="NCCL rejects values above its limits. Each connection to another host has its own threads, so many of them compete with the "
    "application. With RDMA the variables have no effect.",
    fix=f"export {THREADS}=4 {SOCKETS}=4",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, NCCL_SOCKET_NTHREADS",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The product of both."""
    every = settings(machine)
    if every is None:
        yield no_environment()
        return
    present = [every[name] for name in (THREADS, SOCKETS) if name in every]
    if not present:
        yield passed("", f"neither {THREADS} nor {SOCKETS} is set")
        return
    text = " ".join(setting.text for setting in present)
    evidence = [setting.evidence() for setting in present]
    threads, sockets = (parse_int(every[name].value) if name in every else 1 for name in (THREADS, SOCKETS))
    disabled = DISABLE in every and parse_int(every[DISABLE].value) != 0
    if threads > MOST_THREADS or threads * sockets > MOST:
        message = f"{text}: {threads} threads and {threads * sockets} sockets; NCCL accepts at most {MOST_THREADS} and {MOST}"
        yield warned("", message, *evidence, fix=ROW.fix)
    elif any(port.active for port in machine.ports) and not disabled:
        yield passed("", f"{text} has no effect while NCCL uses RDMA", *evidence)
    else:
        yield passed("", f"{text}: {threads * sockets} sockets for each connection", *evidence)


CHECK = Check(ROW, look)
