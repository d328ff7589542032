"""The table of sweep options: one row each, from which both faces' arguments, the SweepSpec defaults and the docs page are made.

Letters, long names and compat defaults are nccl-tests 2.19.6's; `run_default` is given where the modern face is saner.
"""

from dataclasses import dataclass
from typing import Any, Literal

MOST = {"int": (1 << 31) - 1, "size": (1 << 63) - 1}  # what nccl-tests' own variables hold
MOST_OPERATIONS = 10**7  # iterations x aggregated operations; each may keep a sample


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `kind` is int, size, or word (kept as text).

    `least` and `most` bound its value, `choices` are the only ones it has. nccl-tests takes values outside of `choices`, and of a
    `soft` option's bounds, without a word: only the modern face refuses those.
    """

    short: str
    long: str
    field: str  # the SweepSpec field it sets
    kind: Literal["int", "size", "word"]
    default: Any
    help: str
    run_default: Any = None
    compat_only: bool = False
    least: int | None = None
    most: int | None = None
    choices: tuple[int, ...] = ()
    soft: bool = False

    @property
    def default_for_run(self) -> Any:
        """The default of the modern face."""
        return self.default if self.run_default is None else self.run_default

    @property
    def allowed(self) -> str:
        """The values it may have, in words: `0, 1 or 2`, `at least 1`, `from 0 to 9`; empty where the table bounds nothing."""
        if self.choices:
            *first, last = map(str, self.choices)
            return f"{', '.join(first)} or {last}"
        if self.least is None:
            return ""
        return f"at least {self.least}" if self.most is None else f"from {self.least} to {self.most}"

    def name(self, *, strict: bool) -> str:
        """`--agg-iters` in the modern face, `-m` in the other."""
        return f"--{self.long.replace('_', '-')}" if strict else f"-{self.short}"

    def holds(self, value: int, *, strict: bool) -> bool:
        """Whether the option may have this value in the modern face (`strict`), or in the other."""
        if strict and self.choices:
            return value in self.choices
        bounded = strict or not self.soft
        least = self.least if bounded else None
        most = self.most if bounded and self.most is not None else MOST[self.kind]
        return (least is None or value >= least) and value <= most


OPTIONS: tuple[Option, ...] = (
    Option("t", "nthreads", "nthreads", "int", 1, "threads a process; ranks = processes x threads x GPUs", compat_only=True, least=1),
    Option("g", "ngpus", "ngpus", "int", 1, "GPUs a thread", compat_only=True, least=1),
    Option("b", "minbytes", "min_bytes", "size", 32 << 20, "smallest size", 8, least=1),
    Option("e", "maxbytes", "max_bytes", "size", 32 << 20, "largest size, included; capped by memory", 8 << 30, least=1),
    Option("i", "stepbytes", "step_bytes", "size", 1 << 20, "step between sizes, when no factor is given", least=0),
    Option("f", "stepfactor", "step_factor", "int", 1, "factor between sizes; 1 = use the step in bytes", 2, least=1, soft=True),
    Option("n", "iters", "iters", "int", 20, "timed iterations", least=0, most=MOST_OPERATIONS),
    Option("m", "agg_iters", "agg_iters", "int", 1, "operations an iteration, aggregated in one group", least=1, most=MOST_OPERATIONS),
    Option("w", "warmup_iters", "warmup_iters", "int", 1, "warm-up operations per power-of-two size", least=0),
    Option("N", "run_cycles", "run_cycles", "int", 1, "times the whole sweep is run; 0 = until stopped", least=0),
    Option("p", "parallel_init", "parallel_init", "int", 0, "threads initialise NCCL themselves", compat_only=True),
    Option("c", "check", "check", "int", 1, "rounds of data checks per size; 0 = none", least=0),
    Option("o", "op", "op", "word", "sum", "reduction: sum, prod, min, max, avg, mulsum or all"),
    Option("d", "datatype", "datatype", "word", "float", "element type, or all"),
    Option("r", "root", "root", "word", "0", "root of rooted collectives; -1 or all = every rank in turn"),
    Option("z", "blocking", "blocking", "int", 0, "1 wait and barrier after each operation, 2 wait, 3 wait, then an untimed barrier",
           choices=(0, 1, 2, 3)),
    Option("y", "stream_null", "stream_null", "int", 0, "use the NULL stream", choices=(0, 1)),
    Option("T", "timeout", "timeout", "int", 0, "seconds that waiting for the GPU may take; 0 = no limit", least=0, soft=True),
    Option("G", "cudagraph", "cudagraph", "int", 0, "capture the iterations as a CUDA graph and launch it this many times", least=0),
    Option("C", "report_cputime", "report_cputime", "int", 0, "report the time rank 0's CPU takes to enqueue instead of latency",
           choices=(0, 1)),
    Option("a", "average", "average", "int", 1, "time over ranks: 0 rank 0's, 1 mean, 2 smallest, 3 largest", choices=(0, 1, 2, 3)),
    Option("R", "local_register", "local_register", "int", 0, "register buffers with NCCL: 1 local, 2 symmetric window", choices=(0, 1, 2)),
    Option("x", "cta_policy", "cta_policy", "int", -1, "NCCL's CTA policy (NCCL 2.27 and newer); -1 = NCCL's own choice",
           choices=(-1, 0, 1, 2)),
    Option("D", "device_implementation", "device_implementation", "int", 0, "device-side kernels: refused", compat_only=True),
    Option("V", "device_cta_count", "device_cta_count", "int", 16, "CTAs of the device implementation",
           compat_only=True, least=1, most=128, soft=True),
    Option("S", "report_timestamps", "report_timestamps", "int", 0, "a column with the time of day of each row", choices=(0, 1)),
    Option("J", "output_file", "output_file", "word", "", "also write nccl-tests' JSON to this .json file", compat_only=True),
    Option("M", "memory", "memory", "int", 0, "report GPU memory use after the run", choices=(0, 1)),
    Option("u", "unalign", "unalign", "int", 0, "shift both buffers by this many elements", least=0),
    Option("I", "per_iter_timing", "per_iter_timing", "int", 0, "time every iteration by events and report their spread", choices=(0, 1)),
    Option("K", "per_iter_skip", "per_iter_skip", "int", 0, "leading iterations left out of that spread", least=0, soft=True),
)  # fmt: skip

BY_FIELD: dict[str, Option] = {row.field: row for row in OPTIONS}
