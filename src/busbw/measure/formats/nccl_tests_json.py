"""The JSON of nccl-tests (-J).

Document and the structs in it are its types, for format versions 1 to 4; what may be absent has a
default. `render` writes what nccl-tests 2.20.0 does (format version 4): same keys, order,
separators, escapes and number texts. Version 4 is version 3 and `tuning` in the rows of -U, which
busbw refuses. busbw differs in two things: `devices` lists every GPU (the original lists the first
of each process), and `env` was masked before.
"""

import math
import re

import msgspec

from busbw.core.cells import figures
from busbw.core.result import Cell, RankDevice, Result, ResultRow
from busbw.stats.intervals import summary
from busbw.ui.number_formats import local_time, minimum_gb_s, op_column, printed_time_s

Number = float | str  # nan is written as a string
CONFIG_NAMES = {
    "min_bytes": "minimum_bytes",
    "max_bytes": "maximum_bytes",
    "iters": "iterations",
    "agg_iters": "aggregated_iterations",
    "check": "validation",
    "cudagraph": "graph",
    "blocking": "blocking_collectives",
}
VERSION = 4
MAX_STRING = 2047
_SPECIAL = re.compile(r'[^ -~]|["\\/]')  # what `string` escapes or ends before
ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\t": "\\t", "\n": "\\n"}


class NcclTestsDevice(msgspec.Struct):
    """A device in the list `devices`."""

    rank: int = 0
    group: int = 0
    pid: int = 0
    hostname: str = ""
    device: int = 0
    device_hex: str = ""
    device_info: str = ""


class NcclTestsConfig(msgspec.Struct, rename=CONFIG_NAMES):
    """`config`: fields have the names of SweepSpec and the order of the file.

    Truth values are the strings "true" and "false".
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
    devices: list[NcclTestsDevice] = []


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


class NcclTestsTuning(msgspec.Struct, rename={"channels": "#channels"}):
    """What -U adds to a row. What NCCL did not report is N/A."""

    algo: str = ""
    proto: str = ""
    channels: int | str = 0


class NcclTestsRow(msgspec.Struct):
    """A row in the list `results`."""

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
    tuning: NcclTestsTuning | None = None


class OutOfBounds(msgspec.Struct):
    """How many values were wrong."""

    count: int = 0


class NcclTestsDocument(msgspec.Struct):
    """The whole document."""

    config: NcclTestsConfig
    args: list[str]
    env: list[str] = []
    start_time: str = ""
    end_time: str | None = None
    nccl_version: int = 0
    results: list[NcclTestsRow] | None = None
    out_of_bounds: OutOfBounds | None = None
    errors: list[str | None] | None = None


def string(text: str) -> str:
    """A quoted string of at most 2047 characters.

    It ends before the first character that is not printable ASCII, tab or newline.
    """
    if len(text) <= MAX_STRING and not _SPECIAL.search(text):
        return f'"{text}"'
    out = ""
    for char in text:
        escaped = ESCAPES.get(char, char)
        writable = char in ESCAPES or 0x20 <= ord(char) < 0x7F
        if not writable or len(out) + len(escaped) > MAX_STRING:
            break
        out += escaped
    return f'"{out}"'


def written(value: object) -> str:
    """A value as nccl-tests writes it.

    Numbers have six decimals. Truth values, nan and infinity are strings.
    """
    match value:
        case None:
            return "null"
        case str():
            return string(value)
        case bool():
            return '"true"' if value else '"false"'
        case float():
            return f"{value:f}" if math.isfinite(value) else f'"{value:f}"'
        case dict():
            items = [f"{string(key)}:{written(item)}" for key, item in value.items()]
            return "{" + ",".join(items) + "}"
        case list():
            return "[" + ",".join(map(written, value)) + "]"
        case _:
            return str(value)


def render(result: Result) -> str:
    """The whole document on one line, without a newline at its end."""
    average, minimum = result.average_busbw() / 1e9, minimum_gb_s(result)
    return written(
        {
            "version": VERSION,
            "start_time": local_time(result.start),
            # a reader knows the collective by the program; a log states no arguments
            "args": result.argv or [result.program or f"{result.spec.collective}_perf"],
            "env": [f"{name}={value}" for name, value in result.environment.items()],
            "nccl_version": result.library.nccl,
            "config": _config(result),
            "results": [_row(result, row) for row in result.rows],
            "out_of_bounds": {"count": result.out_of_bounds, "okay": not result.wrong()},
            "average_bus_bandwidth": {
                "bandwidth": average,
                "okay": "unchecked" if minimum is None else average >= 0.9 * minimum,
            },
            "errors": [result.errors[-1] if result.errors else ""],
            "end_time": local_time(result.end),
        }
    )


def _config(result: Result) -> dict[str, object]:
    spec = result.spec
    unused = "step_bytes" if spec.step_factor > 1 else "step_factor"
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(NcclTestsConfig):
        if field.name not in (unused, "devices"):
            value = getattr(spec, field.name)
            values[field.encode_name] = bool(value) if field.type is str else value
    values["devices"] = [_device(device) for device in result.world.devices]
    return values


def _device(device: RankDevice) -> dict[str, object]:
    return {
        "rank": device.rank,
        "group": device.group,
        "pid": device.pid,
        "hostname": device.host.split(".")[0],
        "device": device.index,
        "device_hex": device.bus or "0000:00:00",
        "device_info": device.name,
    }


def _row(result: Result, row: ResultRow) -> dict[str, object]:
    op = op_column(result.spec.row, row)
    document: dict[str, object] = {
        "size": row.size_bytes,
        "count": row.count,
        "type": row.dtype,
        "redop": op,
        "root": f"{row.root:6d}",
    }
    for key, cell in (("out_of_place", row.out_of_place), ("in_place", row.in_place)):
        document[key] = None if cell is None else _cell(result, cell)
        if cell is not None and result.spec.per_iter_timing and cell.kept_s:
            document[f"{key}_per_iter"] = _per_iteration(cell)
    return document | {
        "actual_iterations": next((figure.n for figure in figures(row)), row.iters),
        "experiment_name": "",
    }


def _cell(result: Result, cell: Cell) -> dict[str, object]:
    return {
        "cpu_time" if result.spec.report_cputime else "time": printed_time_s(result, cell) * 1e6,
        "alg_bw": cell.algbw / 1e9,
        "bus_bw": cell.busbw / 1e9,
        "nwrong": None if cell.wrong is None else float(cell.wrong),
    }


def _per_iteration(cell: Cell) -> dict[str, object]:
    spread = summary(cell.kept_s)
    document: dict[str, object] = {"skipped_iterations": cell.skipped}
    for name in ("min", "max", "mean", "p50", "p95", "p99", "stdev"):
        document["avg_us" if name == "mean" else f"{name}_us"] = getattr(spread, f"{name}_s") * 1e6
    document |= {"cv_pct": spread.cv * 100, "times_us": _microseconds(cell.samples_s or [])}
    if cell.process_samples_s and len(cell.process_samples_s) > 1:
        document["per_process_max_times_us"] = [
            _microseconds(samples) for samples in cell.process_samples_s
        ]
    return document


def _microseconds(samples_s: list[float]) -> list[float]:
    return [sample * 1e6 for sample in samples_s]
