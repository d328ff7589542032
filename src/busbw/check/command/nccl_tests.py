"""The options of a program of nccl-tests: sizes and GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from busbw.check.base import failed, passed, skipped, warned
from busbw.check.command.line import STAYS, Line, inner, rule
from busbw.check.shell_words import word
from busbw.check.types import Evidence, Found
from busbw.core.errors import UsageError
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import parse_size, short_size

DEFAULT_BYTES = 32 << 20  # -b and -e
LONG = {
    "minbytes": "b",
    "maxbytes": "e",
    "stepfactor": "f",
    "stepbytes": "i",
    "ngpus": "g",
    "nthreads": "t",
}


@dataclass(frozen=True, slots=True)
class Perf:
    """What a run of nccl-tests measures, sizes in bytes; `stepped`: whether -f or -i is given."""

    name: str
    least: int
    most: int
    stepped: bool
    gpus: int  # of each thread
    threads: int

    @property
    def devices(self) -> int:
        """GPUs of each process."""
        return self.gpus * self.threads


def perf(line: Line) -> Perf | None:
    """The program if it is one of nccl-tests, like all_reduce_perf.

    None for others, and for options that are not sizes or numbers.
    """
    words = inner(line.program)
    at = next(
        (index for index, word in enumerate(words) if Path(word).name.endswith("_perf")), None
    )
    if at is None:
        return None
    given = {}
    rest = list(words[at + 1 :])
    for index, text in enumerate(rest):
        name, _, attached = (
            text[2:].partition("=") if text.startswith("--") else (text[1:2], "", text[2:])
        )
        name = LONG.get(name, name)
        if text.startswith("-") and name in LONG.values():
            given[name] = attached or (rest[index + 1] if index + 1 < len(rest) else "")
    try:
        least, most = (parse_size(given[one]) if one in given else DEFAULT_BYTES for one in "be")
        gpus, threads = (int(given.get(one, "1")) for one in "gt")
    except (UsageError, ValueError):
        return None
    return Perf(Path(words[at]).name, least, most, "f" in given or "i" in given, gpus, threads)


ENOUGH = 64 << 20
STEP, MANY = 1 << 20, 200  # nccl-tests' default step, and too many sizes

SIZES = CheckRow(
    id="BW232",
    name="line-sizes",
    layer=Layer.LAUNCHER,
    title="sizes of nccl-tests",
    right="several, in factors of 2; up to 1 GiB or more for bandwidth",
    why=(
        "One small size does not measure bandwidth: 4 MiB over many GPUs is mostly latency, and "
        "its busbw says little about the links. Without -b and -e nccl-tests measures only 32 MiB. "
        "Without -f it steps by 1 MiB, through thousands of sizes."
    ),
    fix="-b 8 -e 8G -f 2",
    stays=STAYS,
    reads=("the command line",),
    sources=("nccl-tests, README",),
)


@rule(SIZES)
def check_sizes(line: Line) -> Iterator[Found]:
    """The range of sizes."""
    program = perf(line)
    if program is None:
        yield skipped("not a program of nccl-tests")
        return
    sizes = f"-b {short_size(program.least)} -e {short_size(program.most)}"
    evidence = Evidence(program.name, sizes, SIZES.fix)
    steps = (program.most - program.least) // STEP
    if program.most < ENOUGH and program.least == program.most:
        message = (
            f"a single size of {short_size(program.most)} measures latency more than bandwidth"
        )
        yield warned("", message, evidence, fix=f"{word(program.name)} {SIZES.fix}")
    elif steps > MANY and not program.stepped:
        yield warned("", f"{sizes} without -f has {steps + 1} sizes", evidence, fix=f"{sizes} -f 2")
    else:
        yield passed("", sizes, evidence)


MOST_GPUS = 16  # GPUs that hosts have

GPUS = CheckRow(
    id="BW233",
    name="line-gpus",
    layer=Layer.LAUNCHER,
    title="ranks per host times -g and -t, compared with its GPUs",
    right=(
        "at most the number of GPUs: one rank per GPU with -g 1, or one rank per host with -g set"
        " to its GPUs"
    ),
    why=(
        "Each nccl-tests process drives -g times -t GPUs. 8 ranks with -g 8 need 64: CUDA has no"
        " such device, and the test stops."
    ),
    fix="-g 1",
    stays=STAYS,
    reads=("the command line", "NVML"),
    sources=("nccl-tests, README",),
)


@rule(GPUS)
def check_gpus(line: Line) -> Iterator[Found]:
    """Ranks times threads times GPUs."""
    program, ranks = perf(line), line.ranks_per_node or (1 if not line.launcher else None)
    if program is None or ranks is None:
        yield skipped("not nccl-tests with a known number of ranks on a host")
        return
    used = ranks * program.devices
    product = f"{ranks} ranks x -g {program.gpus} x -t {program.threads}"
    evidence = Evidence(
        program.name, product, f"{line.gpus} GPUs" if line.gpus else "the GPUs of a host"
    )
    if line.gpus and used > line.gpus:
        each = max(line.gpus // ranks // program.threads, 1)
        bad = warned if line.several else failed  # other hosts may have more than this one
        yield bad(
            "", f"{product} is {used} GPUs; this host has {line.gpus}", evidence, fix=f"-g {each}"
        )
    elif used > MOST_GPUS:
        yield warned("", f"{product} is {used} GPUs on a host", evidence, fix="-g 1 -t 1")
    else:
        yield passed("", f"{product} is {used} GPUs on a host", evidence)
