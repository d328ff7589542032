"""The JSON of nccl-tests (-J) as types, for format versions 1 to 3; what may be absent has a
default.
"""

import msgspec

Number = float | str  # nan is written as a string


class Entry(msgspec.Struct):
    """One of `devices`."""

    rank: int = 0
    group: int = 0
    pid: int = 0
    hostname: str = ""
    device: int = 0
    device_hex: str = ""
    device_info: str = ""


CONFIG_NAMES = {
    "min_bytes": "minimum_bytes",
    "max_bytes": "maximum_bytes",
    "iters": "iterations",
    "agg_iters": "aggregated_iterations",
    "check": "validation",
    "cudagraph": "graph",
    "blocking": "blocking_collectives",
}


class Config(msgspec.Struct, rename=CONFIG_NAMES):
    """`config`, with the names of SweepSpec's fields in the order of the file; truth values are
    the strings "true" and "false".
    """

    nthreads: int = 1
    ngpus: int = 1
    min_bytes: int = 0
    max_bytes: int = 0
    step_factor: int = 1
    step_bytes: int = 0
    warmup_iters: int = 0
    iters: int = 0
    agg_iters: int = 1
    check: int = 0
    cudagraph: int = 0
    blocking: str = "false"
    per_iter_timing: str = "false"
    per_iter_skip: int = 0
    parallel_init: str = "false"
    devices: list[Entry] = []


class Figures(msgspec.Struct):
    """One placement of one row: microseconds, GB/s, wrong elements."""

    alg_bw: Number
    bus_bw: Number
    nwrong: Number | None = None
    time: Number | None = None
    cpu_time: Number | None = None


class Spread(msgspec.Struct):
    """The samples of one placement, in microseconds."""

    times_us: list[Number]
    skipped_iterations: int = 0
    per_process_max_times_us: list[list[Number]] | None = None


class Line(msgspec.Struct):
    """One of `results`."""

    size: int
    count: int
    type: str
    redop: str
    root: int | str
    out_of_place: Figures | None = None
    in_place: Figures | None = None
    out_of_place_per_iter: Spread | None = None
    in_place_per_iter: Spread | None = None
    actual_iterations: int | None = None


class OutOfBounds(msgspec.Struct):
    """The verdict on the data."""

    count: int = 0


class Document(msgspec.Struct):
    """The file."""

    config: Config
    args: list[str]
    env: list[str] = []
    start_time: str = ""
    end_time: str | None = None
    nccl_version: int = 0
    results: list[Line] | None = None
    out_of_bounds: OutOfBounds | None = None
    errors: list[str | None] | None = None
