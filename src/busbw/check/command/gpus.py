"""GPUs used by the ranks of a host."""

from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, warned
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.command.perf import perf
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

MOST = 16  # GPUs that hosts have

ROW = CheckRow(
    id="BW233",
    name="line-gpus",
    layer=Layer.LAUNCHER,
    title="ranks per host times -g and -t, compared with its GPUs",
    right="at most the number of GPUs: one rank per GPU with -g 1, or one rank per host with -g set to its GPUs",
    why="Each nccl-tests process drives -g times -t GPUs. 8 ranks with -g 8 need 64: CUDA has no such device, and the test stops.",
    fix="-g 1",
    stays=STAYS,
    reads=("the command line", "NVML"),
    sources=("nccl-tests, README",),
)


def look(line: Line) -> Iterator[Found]:
    """Ranks times threads times GPUs."""
    program, ranks = perf(line), line.ranks_per_node or (1 if not line.launcher else None)
    if program is None or ranks is None:
        yield skipped("not nccl-tests with a known number of ranks on a host")
        return
    used = ranks * program.devices
    product = f"{ranks} ranks x -g {program.gpus} x -t {program.threads}"
    evidence = Evidence(program.name, product, f"{line.gpus} GPUs" if line.gpus else "the GPUs of a host")
    if line.gpus and used > line.gpus:
        each = max(line.gpus // ranks // program.threads, 1)
        bad = warned if line.several else failed  # other hosts may have more than this one
        yield bad("", f"{product} is {used} GPUs; this host has {line.gpus}", evidence, fix=f"-g {each}")
    elif used > MOST:
        yield warned("", f"{product} is {used} GPUs on a host", evidence, fix="-g 1 -t 1")
    else:
        yield passed("", f"{product} is {used} GPUs on a host", evidence)


CHECK = Rule(ROW, look)
