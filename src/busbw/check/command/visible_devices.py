"""The same CUDA_VISIBLE_DEVICES for all ranks of a host."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line, unset
from busbw.check.command.perf import perf
from busbw.check.shell_words import assignment
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "CUDA_VISIBLE_DEVICES"

ROW = CheckRow(
    id="BW228",
    name="line-visible-devices",
    layer=Layer.LAUNCHER,
    title=f"{VARIABLE} for all ranks",
    right="not on the line, or as many GPUs as the ranks of a host use",
    why="The line gives each rank the same value. With fewer GPUs than the ranks of a host use, nccl-tests finds no such device, or two "
    "ranks choose the same GPU and NCCL stops: duplicate GPU detected.",
    fix=f"leave out -x {VARIABLE}",
    stays=STAYS,
    reads=("the command line",),
    sources=("CUDA C++ programming guide, environment variables",),
)


def look(line: Line) -> Iterator[Found]:
    """The number of GPUs in it, compared with what a host's ranks use."""
    value = dict(line.variables).get(VARIABLE)
    if value is None:
        yield skipped(f"the line does not set {VARIABLE}")
        return
    count = len([word for word in value.split(",") if word.strip()])
    program = perf(line)
    if program is None or unset(value):
        yield skipped("not nccl-tests, or the value is unknown")
        return
    each = (line.ranks_per_node or 1) * program.devices
    evidence = Evidence(f"-x {VARIABLE}", value, f"{each} GPUs")
    if count < each:
        message = f"{VARIABLE}={value} has {count} GPUs; the ranks of a host need {each}"
        yield failed("", message, evidence, fix=f"leave out -x {assignment(VARIABLE, value)}")
    else:
        yield passed("", f"{count} GPUs for {each} on a host", evidence)


CHECK = Rule(ROW, look)
