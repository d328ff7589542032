"""The table of sweep options, from which the arguments of `busbw run`, those of the compat commands
and the reference page are derived.

Letters, long names and defaults are those of nccl-tests 2.20.0.
"""

from dataclasses import dataclass
from typing import Any, Literal

LARGEST_BY_KIND = {
    "int": (1 << 31) - 1,
    "size": (1 << 63) - 1,
}  # the range of nccl-tests' variables
MAX_TIME_S = 0.5  # of sampling a cell
LIMIT_S, LAUNCH_LIMIT_S = 60.0, 120.0  # without a completed operation, and until ranks have joined
# Of ranks on CPUs, where the command line does not say it: the largest size, and where it names no
# size at all, the factor between them and the seconds of the whole sweep.
CPU_LARGEST, CPU_FACTOR, CPU_SWEEP_S = 32 << 20, 4, 30.0
MAX_OPERATIONS = 10**7  # iterations x aggregated operations; each may keep a sample


@dataclass(frozen=True, slots=True)
class Option:
    """One option. nccl-tests accepts values outside of `choices` silently; `busbw run` rejects
    them.
    """

    short: str
    long: str
    field: str  # the SweepSpec field it sets
    kind: Literal["int", "size", "word"]  # a word is kept as text
    default: Any
    help: str
    run_default: Any = None  # of `busbw run`, if it differs
    compat_only: bool = False
    least: int | None = None  # bounds of the value, with `most`
    most: int | None = None
    choices: tuple[int, ...] = ()  # all valid values
    soft: bool = False  # nccl-tests also accepts values outside of the bounds

    @property
    def default_for_run(self) -> Any:
        return self.default if self.run_default is None else self.run_default

    @property
    def allowed(self) -> str:
        """The valid values: `0, 1 or 2`, `at least 1`, `from 0 to 9`; '' without bounds."""
        if self.choices:
            *first, last = map(str, self.choices)
            return f"{', '.join(first)} or {last}"
        if self.least is None:
            return ""
        if self.most is None:
            return f"at least {self.least}"
        return f"from {self.least} to {self.most}"

    def name(self, *, strict: bool) -> str:
        """`--agg-iters` for `busbw run` (`strict`), `-m` for the compat commands."""
        return f"--{self.long.replace('_', '-')}" if strict else f"-{self.short}"

    def holds(self, value: int, *, strict: bool) -> bool:
        """Whether the value is valid for `busbw run` (`strict`) or for the compat commands."""
        if strict and self.choices:
            return value in self.choices
        least, largest = self.least, self.most
        if self.soft and not strict:
            least = largest = None
        if least is not None and value < least:
            return False
        return value <= (LARGEST_BY_KIND[self.kind] if largest is None else largest)


OPTIONS: tuple[Option, ...] = (
    Option(
        "t",
        "nthreads",
        "nthreads",
        "int",
        1,
        "threads per process; ranks = processes x threads x GPUs",
        compat_only=True,
        least=1,
    ),
    Option("g", "ngpus", "ngpus", "int", 1, "GPUs per thread", compat_only=True, least=1),
    Option("b", "minbytes", "min_bytes", "size", 32 << 20, "smallest size", 8, least=1),
    Option(
        "e",
        "maxbytes",
        "max_bytes",
        "size",
        32 << 20,
        "largest size, inclusive; limited by memory",
        8 << 30,
        least=1,
    ),
    Option(
        "i",
        "stepbytes",
        "step_bytes",
        "size",
        1 << 20,
        "step between sizes; used with --stepfactor 1",
        least=0,
    ),
    Option(
        "f",
        "stepfactor",
        "step_factor",
        "int",
        1,
        "factor between sizes; 1 = use the step in bytes",
        2,
        least=1,
        soft=True,
    ),
    Option("n", "iters", "iters", "int", 20, "timed iterations", least=0, most=MAX_OPERATIONS),
    Option(
        "m",
        "agg_iters",
        "agg_iters",
        "int",
        1,
        "operations per iteration, aggregated in one group",
        least=1,
        most=MAX_OPERATIONS,
    ),
    Option(
        "w",
        "warmup_iters",
        "warmup_iters",
        "int",
        1,
        "warm-up operations per power-of-two size",
        least=0,
    ),
    Option(
        "N",
        "run_cycles",
        "run_cycles",
        "int",
        1,
        "number of sweeps, all with the same communicators; 0 = until interrupted",
        least=0,
    ),
    Option(
        "p",
        "parallel_init",
        "parallel_init",
        "int",
        0,
        "initialize NCCL in parallel, in each thread",
        compat_only=True,
    ),
    Option("c", "check", "check", "int", 1, "data checks per size; 0 = none", least=0),
    Option("o", "op", "op", "word", "sum", "reduction: sum, prod, min, max, avg, mulsum or all"),
    Option("d", "datatype", "datatype", "word", "float", "element type, or all"),
    Option(
        "r",
        "root",
        "root",
        "word",
        "0",
        "root of rooted collectives; -1 or all = every rank in turn",
    ),
    Option(
        "z",
        "blocking",
        "blocking",
        "int",
        0,
        "after each operation: 1 = wait and barrier, 2 = wait, 3 = wait, then an untimed barrier",
        choices=(0, 1, 2, 3),
    ),
    Option("y", "stream_null", "stream_null", "int", 0, "use the NULL stream", choices=(0, 1)),
    Option(
        "T",
        "timeout",
        "timeout",
        "int",
        0,
        "time limit in seconds for waiting on the GPU; 0 = no limit",
        least=0,
        soft=True,
    ),
    Option(
        "G",
        "cudagraph",
        "cudagraph",
        "int",
        0,
        "capture the iterations as a CUDA graph and launch it this many times; 0 = no",
        least=0,
    ),
    Option(
        "C",
        "report_cputime",
        "report_cputime",
        "int",
        0,
        "add a column: CPU time of rank 0 to enqueue one operation; compat: instead of the time",
        choices=(0, 1),
    ),
    Option(
        "a",
        "average",
        "average",
        "int",
        1,
        "time over ranks: 0 = rank 0, 1 = mean, 2 = minimum, 3 = maximum",
        choices=(0, 1, 2, 3),
    ),
    Option(
        "R",
        "local_register",
        "local_register",
        "int",
        0,
        "register buffers with NCCL: 1 = local, 2 = symmetric window",
        choices=(0, 1, 2),
    ),
    Option(
        "x",
        "cta_policy",
        "cta_policy",
        "int",
        -1,
        "NCCL's CTA policy (NCCL 2.27 and newer); -1 = NCCL's own choice",
        choices=(-1, 0, 1, 2),
    ),
    Option(
        "D",
        "device_implementation",
        "device_implementation",
        "int",
        0,
        "device-side kernels: not supported",
        compat_only=True,
    ),
    Option(
        "V",
        "device_cta_count",
        "device_cta_count",
        "int",
        16,
        "CTAs of device-side kernels",
        compat_only=True,
        least=1,
        most=128,
        soft=True,
    ),
    Option(
        "S",
        "report_timestamps",
        "report_timestamps",
        "int",
        0,
        "add a column with the time of day of each row",
        choices=(0, 1),
    ),
    Option(
        "J",
        "output_file",
        "output_file",
        "word",
        "",
        "also write nccl-tests' JSON to this .json file",
        compat_only=True,
    ),
    Option(
        "M", "memory", "memory", "int", 0, "report GPU memory use after the run", choices=(0, 1)
    ),
    Option(
        "u", "unalign", "unalign", "int", 0, "shift both buffers by this many elements", least=0
    ),
    Option(
        "I",
        "per_iter_timing",
        "per_iter_timing",
        "int",
        0,
        "time each iteration with events and report the spread",
        choices=(0, 1),
    ),
    Option(
        "K",
        "per_iter_skip",
        "per_iter_skip",
        "int",
        0,
        "leading iterations excluded from that spread",
        least=0,
        soft=True,
    ),
    Option(
        "U",
        "tuning",
        "tuning",
        "int",
        0,
        "columns with NCCL's algorithm and protocol: not supported",
        compat_only=True,
    ),
)

BY_FIELD: dict[str, Option] = {row.field: row for row in OPTIONS}
