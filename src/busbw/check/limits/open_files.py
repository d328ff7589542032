"""The open file limit."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.limits.processes import PATH, limit
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.settings import UNLIMITED

NAME = "Max open files"
LEAST = 131072

ROW = CheckRow(
    id="BW131",
    name="open-files",
    layer=Layer.LIMITS,
    title="open file limit",
    right=f"{LEAST} or more",
    why="NCCL opens files and sockets for each peer: a job of 144 ranks may need 32,000. Large jobs otherwise end with: Too many open "
    "files.",
    fix=f"ulimit -n {LEAST}",
    stays=f"in /etc/security/limits.conf (* - nofile {LEAST}); for services LimitNOFILE={LEAST}; for containers --ulimit nofile={LEAST}",
    reads=(PATH,),
    sources=("NCCL user guide, troubleshooting: file descriptors",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The soft limit of this process, which ranks started from the same shell inherit."""
    reading, soft = limit(machine, NAME)
    if soft is None:
        yield unread("", reading, "the limits of this process")
        return
    yield judged(
        right=soft == UNLIMITED or int(soft) >= LEAST,
        subject="",
        good=f"a process may open {soft} files",
        bad=f"a process may open {soft} files, too few for large jobs",
        evidence=(Evidence(PATH, f"{NAME} {soft}", f"{LEAST} or more"),),
        fix=ROW.fix,
    )


CHECK = Check(ROW, look)
