"""NCCL's log left enabled."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE, FILE = "NCCL_DEBUG", "NCCL_DEBUG_FILE"
LOUD = ("INFO", "TRACE", "ABORT")
STREAMS = ("/dev/stdout", "/dev/stderr")

ROW = CheckRow(
    id="BW182",
    name="nccl-debug",
    layer=Layer.NCCL,
    title=f"{VARIABLE} and {FILE}",
    right="not set, VERSION or WARN; a file with %h and %p in its name",
    why="INFO prints thousands of lines per job into its output. With COLL in NCCL_DEBUG_SUBSYS it prints a line for each operation. "
    "Processes that share a file overwrite each other's lines.",
    fix=f"export {VARIABLE}=WARN",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, NCCL_DEBUG and NCCL_DEBUG_FILE",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Both variables."""
    yield from each(machine, (VARIABLE, FILE), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if setting.name == FILE:
        if "%p" in setting.value or setting.value in STREAMS:
            return passed(FILE, f"{setting.text}: each process has its own file", setting.evidence())
        message = f"{setting.text}: all processes of a host write to this file, and overwrite it"
        return warned(FILE, message, setting.evidence("%h and %p in the name"), fix=setting.to(f"{setting.value}.%h.%p"))
    if setting.value.upper() in LOUD:
        return warned(VARIABLE, f"{setting.text} prints NCCL's log in every run", setting.evidence("WARN"), fix=setting.to("WARN"))
    return passed(VARIABLE, f"{setting.text} is quiet", setting.evidence())


CHECK = Check(ROW, look)
