"""What to measure: a SweepSpec, and the series and sizes that it expands to."""

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.alltoallv import parse_counts
from busbw.core.collectives import BY_NAME, Collective
from busbw.core.dtypes import DTYPES, DType
from busbw.core.dtypes import dtype as dtype_row
from busbw.core.errors import UsageError
from busbw.core.options import BY_FIELD, LARGEST_BY_KIND, MAX_OPERATIONS, MAX_TIME_S, Option
from busbw.core.redops import REDOPS, RedOp
from busbw.core.redops import redop as redop_row
from busbw.core.sizes import parse_int

ENDS = ("min_bytes", "max_bytes")
OF_SIZES = (*ENDS, "step_bytes", "step_factor")
_ROOT = re.compile(r"all|-1|0|[1-9]\d*|0x[0-9a-f]+", re.ASCII | re.IGNORECASE)


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How precise timing samples a cell."""

    precision: Annotated[
        float,
        Meta(
            description="sampling ends when the confidence interval of the median is within this"
            " share of it on either side; 0: the engine's default, 1 % on GPUs and 10"
            " % on CPUs"
        ),
    ] = 0.01
    confidence: float = 0.99
    max_time_s: Annotated[float, Meta(description="limit of the time of a cell")] = MAX_TIME_S
    all_time: Annotated[
        bool,
        Meta(
            description="whether a cell is sampled until it is precise or `max_time_s` is over;"
            " else it also ends as unstable, where more samples are unlikely to help"
        ),
    ] = False
    sweep_s: Annotated[
        float,
        Meta(description="after this time of the sweep no cell is measured again; 0: no limit"),
    ] = 0.0
    fixed: Annotated[
        int, Meta(description="a fixed number of iterations; 0: as many as needed")
    ] = 0
    tail: Annotated[bool, Meta(description="also measure the 99th percentile")] = False
    repeats: Annotated[
        int, Meta(description="how often the sweep runs, each time with new communicators")
    ] = 1


class SweepSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep as requested: the fields of the option table. Sizes are bytes."""

    collective: str
    min_bytes: int = 8
    max_bytes: int = 8 << 30
    step_bytes: int = 1 << 20
    step_factor: int = 1
    nthreads: int = 1
    ngpus: int = 1
    iters: int = 20
    agg_iters: int = 1
    warmup_iters: int = 1
    run_cycles: int = 1
    parallel_init: int = 0
    check: int = 1
    check_timed: bool = False
    soak_s: Annotated[
        float,
        Meta(description="repeat the sweep for so many seconds, or until a check sees wrong data"),
    ] = 0.0
    op: str = "sum"
    datatype: str = "float"
    root: str = "0"
    blocking: int = 0
    stream_null: int = 0
    timeout: int = 0
    cudagraph: int = 0
    report_cputime: int = 0
    average: int = 1
    local_register: int = 0
    cta_policy: int = -1
    device_implementation: int = 0
    device_cta_count: int = 16
    report_timestamps: int = 0
    output_file: str = ""
    memory: int = 0
    unalign: int = 0
    per_iter_timing: int = 0
    per_iter_skip: int = 0
    tuning: int = 0
    counts: Annotated[
        str,
        Meta(
            description="source of alltoallv's bytes for each pair of ranks; empty: nccl-tests'"
            " variables and their defaults"
        ),
    ] = ""
    sampling: Annotated[
        Sampling | None, Meta(description="how to sample; null: classic timing")
    ] = None

    @property
    def row(self) -> Collective:
        return BY_NAME[self.collective]


class Series(msgspec.Struct, frozen=True):
    """One data type, operator and root.

    As in nccl-tests, each series warms up once and then runs all sizes.
    """

    dtype: str
    op: str  # "" if the collective does not reduce
    root: int  # -1 if it has no root


def check_spec(spec: SweepSpec, *, strict: bool = False) -> None:
    """UsageError for invalid values: outside of the option table's bounds, or sizes that never
    reach the largest.

    `strict` checks for `busbw run`: messages use long option names, and values that nccl-tests
    silently accepts are rejected too.
    """
    for field, option in BY_FIELD.items():
        value = getattr(spec, field)
        if option.kind != "word" and field not in ENDS and not option.holds(value, strict=strict):
            _refuse(option, value, strict)
    _check_sizes(spec, strict)
    _check_iterations(spec, strict)
    if spec.counts:
        _check_counts(spec)
    if strict and not _ROOT.fullmatch(spec.root):
        raise UsageError(f"--root '{spec.root}': not a rank", "use a rank number from 0 on, or all")


def check_elements(spec: SweepSpec) -> None:
    """UsageError for sizes that end in the middle of an element, or for more than one type."""
    if spec.datatype.lower() == "all":
        raise UsageError("--datatype all: one type at a time", "name one, like --datatype bfloat16")
    itemsize = dtype_row(spec.datatype).itemsize
    if spec.min_bytes % itemsize:
        raise UsageError(
            f"--minbytes {spec.min_bytes}: an element of {spec.datatype} has {itemsize} bytes",
            f"give a multiple of {itemsize}",
        )


def _check_counts(spec: SweepSpec) -> None:
    if not spec.row.uneven:
        raise UsageError(
            f"--counts {spec.counts}: {spec.collective} moves the same bytes between all ranks",
            "leave it out, or measure alltoallv",
        )
    parse_counts(spec.counts)


def _refuse(option: Option, value: int, strict: bool) -> None:
    name = option.name(strict=strict)
    too_small = option.least is not None and value < option.least
    allowed = f"at most {option.most or LARGEST_BY_KIND[option.kind]}"
    if too_small or (option.choices and strict):
        allowed = option.allowed
    raise UsageError(f"{name} {value}: must be {allowed}", f"{name}: {option.help}")


def _check_sizes(spec: SweepSpec, strict: bool) -> None:
    low, high = spec.min_bytes, spec.max_bytes
    smallest, largest = (BY_FIELD[field].name(strict=strict) for field in ENDS)
    step = BY_FIELD["step_bytes"].name(strict=strict)
    factor = BY_FIELD["step_factor"].name(strict=strict)
    if low > high:
        raise UsageError(
            f"{smallest} {low} is larger than {largest} {high}",
            f"set {largest} to at least {low}, or a smaller {smallest}",
        )
    if low <= 0:
        raise UsageError(
            f"{smallest} {low}: sizes from {low} bytes on would never grow",
            "start at 1 byte or more",
        )
    if high > LARGEST_BY_KIND["size"]:
        raise UsageError(
            f"{largest} {high}: larger than any memory",
            f"set {largest} to what fits in the memory of a rank, such as 8G",
        )
    if spec.step_factor <= 1 and spec.step_bytes <= 0 and low < high:
        raise UsageError(
            f"{step} {spec.step_bytes}: a step of 0 never reaches {largest} {high}",
            f"set {factor} 2, or a step above 0",
        )


def _check_iterations(spec: SweepSpec, strict: bool) -> None:
    iters = BY_FIELD["iters"].name(strict=strict)
    aggregated = BY_FIELD["agg_iters"].name(strict=strict)
    skip = BY_FIELD["per_iter_skip"].name(strict=strict)
    if spec.iters * spec.agg_iters > MAX_OPERATIONS:
        raise UsageError(
            f"{iters} {spec.iters} x {aggregated} {spec.agg_iters}:"
            f" more than {MAX_OPERATIONS} operations for each size",
            f"use fewer; {BY_FIELD['run_cycles'].name(strict=strict)} repeats the sweep",
        )
    if strict and spec.per_iter_timing and spec.per_iter_skip >= spec.iters:
        raise UsageError(
            f"{skip} {spec.per_iter_skip}: must be less than {iters} {spec.iters}",
            f"set {skip} below {iters}, and {iters} to 1 or more",
        )


def sizes(spec: SweepSpec, max_bytes: int) -> Iterator[int]:
    """The sizes of the sweep in bytes, up to `max_bytes`: the requested maximum, or less."""
    size, previous = min(spec.min_bytes, max_bytes), -1
    while previous < size <= max_bytes:  # a step of 0 is one size
        yield size
        previous = size
        if spec.step_factor > 1:
            size *= spec.step_factor
        else:
            size += spec.step_bytes


def from_first_full_row(spec: SweepSpec, ranks: int) -> SweepSpec:
    """The sweep from its first size with an element for every rank; unchanged if there is none."""

    def is_full(size: int) -> bool:
        for dtype in dtypes(spec):
            buffers = spec.row.buffers(size // dtype.itemsize, ranks, dtype.itemsize)
            if min(buffers.send, buffers.recv) <= 0:
                return False
        return True

    first = next(filter(is_full, sizes(spec, spec.max_bytes)), spec.min_bytes)
    return msgspec.structs.replace(spec, min_bytes=first)


def warmup_sizes(spec: SweepSpec, max_bytes: int) -> Iterator[int]:
    """The sizes in bytes of a series' warm-up: powers of two times the smallest size."""
    size = min(spec.min_bytes, max_bytes)
    while size <= max_bytes:
        yield size
        size *= 2


def dtypes(spec: SweepSpec) -> tuple[DType, ...]:
    """The requested element types, in NCCL's order."""
    if spec.datatype.lower() == "all":
        return DTYPES
    return (dtype_row(spec.datatype, also=", or all"),)


def redops(spec: SweepSpec) -> tuple[RedOp | None, ...]:
    """The requested operators; (None,) if the collective does not reduce (but sendrecv runs once
    per operator, as in nccl-tests).
    """
    if not spec.row.reduces and spec.row.redop_column != "op":
        return (None,)
    return REDOPS if spec.op.lower() == "all" else (redop_row(spec.op),)


def roots(spec: SweepSpec, ranks: int) -> tuple[int, ...]:
    """The requested roots; (-1,) if the collective has none."""
    if not spec.row.rooted:
        return (-1,)
    root = -1 if spec.root.lower() == "all" else parse_int(spec.root)
    if root == -1:
        return tuple(range(ranks))
    if not 0 <= root < ranks:
        raise UsageError(
            f"-r {spec.root}: not one of the {ranks} ranks",
            f"use a root from 0 to {ranks - 1}, or all",
        )
    return (root,)


def series(spec: SweepSpec, ranks: int) -> Iterator[Series]:
    """Every (type, operator, root) of the sweep, in nccl-tests' order."""
    for dtype in dtypes(spec):
        for op in redops(spec):
            for root in roots(spec, ranks):
                yield Series(dtype.name, op.name if op else "", root)
