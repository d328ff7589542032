"""Sizes that do not measure bandwidth."""

from collections.abc import Iterator

from busbw.check.base import passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.command.perf import perf
from busbw.check.shell_words import word
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import short_size

ENOUGH = 64 << 20
STEP, MANY = 1 << 20, 200  # nccl-tests' default step, and too many sizes

ROW = CheckRow(
    id="BW232",
    name="line-sizes",
    layer=Layer.LAUNCHER,
    title="sizes of nccl-tests",
    right="several, in factors of 2; up to 1 GiB or more for bandwidth",
    why="One small size does not measure bandwidth: 4 MiB over many GPUs is mostly latency, and its busbw says little about the links. "
    "Without -b and -e nccl-tests measures only 32 MiB. Without -f it steps by 1 MiB, through thousands of sizes.",
    fix="-b 8 -e 8G -f 2",
    stays=STAYS,
    reads=("the command line",),
    sources=("nccl-tests, README",),
)


def look(line: Line) -> Iterator[Found]:
    """The range of sizes."""
    program = perf(line)
    if program is None:
        yield skipped("not a program of nccl-tests")
        return
    sizes = f"-b {short_size(program.least)} -e {short_size(program.most)}"
    evidence = Evidence(program.name, sizes, ROW.fix)
    steps = (program.most - program.least) // STEP
    if program.most < ENOUGH and program.least == program.most:
        message = f"a single size of {short_size(program.most)} measures latency more than bandwidth"
        yield warned("", message, evidence, fix=f"{word(program.name)} {ROW.fix}")
    elif steps > MANY and not program.stepped:
        yield warned("", f"{sizes} without -f has {steps + 1} sizes", evidence, fix=f"{sizes} -f 2")
    else:
        yield passed("", sizes, evidence)


CHECK = Rule(ROW, look)
