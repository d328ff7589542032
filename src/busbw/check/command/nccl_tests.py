"""Checks the sizes and GPUs that a command line of nccl-tests asks for."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

from busbw.check.base import failed, passed, skipped, warned
from busbw.check.command.line import (
    CHANGE_SCRIPT,
    JOB_GPUS_PER_NODE,
    CommandLine,
    inner,
    needs_shell,
    rule,
)
from busbw.check.shell_words import word
from busbw.check.types import Evidence, Finding
from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import scan_size, short_size

DEFAULT_BYTES = 32 << 20  # -b and -e
LETTERS_BY_LONG_NAME = {
    "minbytes": "b",
    "maxbytes": "e",
    "stepfactor": "f",
    "stepbytes": "i",
    "ngpus": "g",
    "nthreads": "t",
}
_PROGRAM = re.compile(rf"({'|'.join(BY_NAME)}|all_reduce_bias)_perf(_mpi)?")
_STARTERS = ("env", "exec", "time", "nohup", "if", "then", "else", "do", "!", "{")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
MIN_LARGEST_BYTES = 64 << 20
DEFAULT_STEP_BYTES, MAX_SIZES = 1 << 20, 200  # nccl-tests' default step, and too many sizes
MAX_GPUS = 16  # GPUs that hosts have


@dataclass(frozen=True, slots=True)
class Perf:
    """The options of a run of nccl-tests."""

    name: str
    min_bytes: int
    max_bytes: int
    stepped: bool  # whether -f or -i is given
    gpus: int  # of each thread
    threads: int
    hidden: bool = False  # whether a variable of the shell may hold more options

    @property
    def devices(self) -> int:
        """Number of GPUs of each process."""
        return self.gpus * self.threads


def perf(line: CommandLine) -> Perf | None:
    """The program if it is one of nccl-tests, like all_reduce_perf.

    None for others, and for options that are not sizes or numbers.
    """
    words = inner(line.program)
    at = _find_program(words)
    if at is None:
        return None
    values = _option_values(words[at + 1 :])
    try:
        min_bytes = scan_size(values["b"]) if "b" in values else DEFAULT_BYTES
        max_bytes = scan_size(values["e"]) if "e" in values else DEFAULT_BYTES
        gpus, threads = int(values.get("g", "1")), int(values.get("t", "1"))
    except (UsageError, ValueError):
        return None
    return Perf(
        name=Path(words[at]).name,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        stepped="f" in values or "i" in values,
        gpus=gpus,
        threads=threads,
        hidden=_hides_options(words[at:]),
    )


def _find_program(words: Sequence[str]) -> int | None:
    """The index of the program of nccl-tests: the first word, or one that options follow.

    None without one.
    """
    first = 0
    while first < len(words) and _precedes_program(words[first]):
        first += 1
    for at, text in enumerate(words):
        followed = words[at + 1 : at + 2] and words[at + 1].startswith("-")
        if _PROGRAM.fullmatch(Path(text).name) and (at <= first or followed):
            return at
    return None


def _precedes_program(text: str) -> bool:
    """Whether the program may come after this word: env, A=1, or what a shell expands."""
    named = _PROGRAM.fullmatch(Path(text).name)
    return not named and (text in _STARTERS or bool(_ASSIGNED.fullmatch(text)) or needs_shell(text))


def _hides_options(words: Sequence[str]) -> bool:
    """Whether a word after the program that is no option's value is for the shell to expand."""
    pairs = pairwise(words)
    return any(needs_shell(text) and not before.startswith("-") for before, text in pairs)


def _option_values(arguments: Sequence[str]) -> dict[str, str]:
    """The values of the options in LETTERS_BY_LONG_NAME, by letter; '' where one is missing."""
    values = {}
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if argument.startswith("--"):
            name, _, attached = argument[2:].partition("=")
        else:
            name, attached = argument[1:2], argument[2:]
        letter = LETTERS_BY_LONG_NAME.get(name, name)
        if argument.startswith("-") and letter in LETTERS_BY_LONG_NAME.values():
            values[letter] = attached or following
    return values


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
    stays=CHANGE_SCRIPT,
    reads=("the command line",),
    sources=("nccl-tests, README",),
)


@rule(SIZES)
def check_sizes(line: CommandLine) -> Iterator[Finding]:
    """The sizes from -b to -e, and whether they are stepped through."""
    program = perf(line)
    if program is None:
        yield skipped("not a program of nccl-tests")
        return
    if program.hidden:
        yield skipped("a variable may hold the sizes")
        return
    sizes = f"-b {short_size(program.min_bytes)} -e {short_size(program.max_bytes)}"
    evidence = Evidence(program.name, sizes, SIZES.fix)
    steps = (program.max_bytes - program.min_bytes) // DEFAULT_STEP_BYTES
    if program.max_bytes < MIN_LARGEST_BYTES and program.min_bytes == program.max_bytes:
        size = short_size(program.max_bytes)
        message = f"a single size of {size} measures latency more than bandwidth"
        yield warned("", message, evidence, fix=f"{word(program.name)} {SIZES.fix}")
    elif steps > MAX_SIZES and not program.stepped:
        yield warned("", f"{sizes} without -f has {steps + 1} sizes", evidence, fix=f"{sizes} -f 2")
    else:
        yield passed("", sizes, evidence)


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
    stays=CHANGE_SCRIPT,
    reads=("the command line", "environment", "NVML"),
    sources=("nccl-tests, README",),
)


@rule(GPUS)
def check_gpus(line: CommandLine) -> Iterator[Finding]:
    """Ranks of a host times threads times GPUs of a thread, compared with the host's GPUs."""
    program = perf(line)
    ranks = line.ranks_per_node or (None if line.launcher else 1)
    if program is None or program.hidden or ranks is None:
        yield skipped("not nccl-tests with a known number of ranks on a host")
        return
    used = ranks * program.devices
    product = f"{ranks} ranks x -g {program.gpus} x -t {program.threads}"
    of_job = line.of_job(JOB_GPUS_PER_NODE)
    gpus = of_job or line.gpus
    available = f"{gpus} GPUs" if gpus else "the GPUs of a host"
    evidence = Evidence(program.name, product, available)
    if gpus and used > gpus:
        per_rank = max(gpus // ranks // program.threads, 1)
        # Other hosts may have more than this one.
        bad = failed if of_job or not line.several else warned
        has = f"the job has {gpus} per host" if of_job else f"this host has {gpus}"
        message = f"{product} is {used} GPUs; {has}"
        yield bad("", message, evidence, fix=f"-g {per_rank}")
    elif used > MAX_GPUS:
        yield warned("", f"{product} is {used} GPUs on a host", evidence, fix="-g 1 -t 1")
    else:
        yield passed("", f"{product} is {used} GPUs on a host", evidence)
