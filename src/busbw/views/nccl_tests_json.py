"""The JSON that nccl-tests 2.19.6 writes with -J (format version 3): same keys, order, separators, escapes and number texts.

Where busbw differs: `devices` lists every GPU (the original lists the first of each process), and `env` was masked before.
"""

import math
from pathlib import Path

import msgspec

from busbw.core.result import Cell, Device, Result, Row
from busbw.stats.summary import summary
from busbw.views.nccl_tests_schema import Config
from busbw.views.words import local_time, minimum_gb_s, op_column, printed_time_s

VERSION = 3
MAX_STRING = 2047
ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\t": "\\t", "\n": "\\n"}


def string(text: str) -> str:
    """A quoted string; it ends before the first character that is not printable ASCII, tab or newline, and after 2047 characters."""
    out = ""
    for char in text:
        piece = ESCAPES.get(char, char)
        if len(out) + len(piece) > MAX_STRING or (char not in ESCAPES and not 0x20 <= ord(char) < 0x7F):
            break
        out += piece
    return f'"{out}"'


def double(value: float) -> str:
    """Six decimals; nan and infinity as strings, since JSON has no numbers for them."""
    return f"{value:f}" if math.isfinite(value) else f'"{value:f}"'


def truth(value: object) -> str:
    """A truth value, which nccl-tests writes as a string."""
    return '"true"' if value else '"false"'


def _object(*items: tuple[str, str]) -> str:
    return "{" + ",".join(f"{string(key)}:{value}" for key, value in items) + "}"


def _array(values: list[str]) -> str:
    return "[" + ",".join(values) + "]"


def render(result: Result) -> str:
    """The whole document on one line, without a newline at its end."""
    return _object(
        ("version", str(VERSION)),
        ("start_time", string(local_time(result.start))),
        ("args", _array([string(arg) for arg in result.argv])),
        ("env", _array([string(f"{name}={value}") for name, value in result.environment.items()])),
        ("nccl_version", str(result.library.nccl)),
        ("config", _config(result)),
        ("results", _array([_row(result, row) for row in result.rows])),
        ("out_of_bounds", _object(("count", str(result.out_of_bounds)), ("okay", truth(not result.wrong())))),
        ("average_bus_bandwidth", _average(result)),
        ("errors", _array([string(result.errors[-1] if result.errors else "")])),
        ("end_time", string(local_time(result.end))),
    )


def _config(result: Result) -> str:
    spec = result.spec
    unused = "step_bytes" if spec.step_factor > 1 else "step_factor"
    items = []
    for field in msgspec.structs.fields(Config):
        if field.name not in (unused, "devices"):
            value = getattr(spec, field.name)
            items.append((field.encode_name, truth(value) if field.type is str else str(value)))
    return _object(*items, ("devices", _array([_device(device) for device in result.world.devices])))


def _device(device: Device) -> str:
    return _object(
        ("rank", str(device.rank)),
        ("group", str(device.group)),
        ("pid", str(device.pid)),
        ("hostname", string(device.host.split(".")[0])),
        ("device", str(device.index)),
        ("device_hex", string(device.bus or "0000:00:00")),
        ("device_info", string(device.name)),
    )


def _row(result: Result, row: Row) -> str:
    items = [
        ("size", str(row.size_bytes)),
        ("count", str(row.count)),
        ("type", string(row.dtype)),
        ("redop", string(op_column(result.spec.row, row))),
        ("root", string(f"{row.root:6d}")),
    ]
    for key, cell in (("out_of_place", row.out_of_place), ("in_place", row.in_place)):
        items.append((key, "null" if cell is None else _cell(result, cell)))
        if cell is not None and result.spec.per_iter_timing and cell.kept_s:
            items.append((f"{key}_per_iter", _per_iteration(cell, cell.samples_s or [])))
    return _object(*items, ("actual_iterations", str(row.iters)), ("experiment_name", string("")))


def _cell(result: Result, cell: Cell) -> str:
    return _object(
        ("cpu_time" if result.spec.report_cputime else "time", double(printed_time_s(result, cell) * 1e6)),
        ("alg_bw", double(cell.algbw / 1e9)),
        ("bus_bw", double(cell.busbw / 1e9)),
        ("nwrong", "null" if cell.wrong is None else double(cell.wrong)),
    )


def _per_iteration(cell: Cell, samples_s: list[float]) -> str:
    spread = summary(cell.kept_s)
    times = [("min_us", spread.min_s), ("max_us", spread.max_s), ("avg_us", spread.mean_s), ("p50_us", spread.p50_s)]
    times += [("p95_us", spread.p95_s), ("p99_us", spread.p99_s), ("stdev_us", spread.stdev_s)]
    figures = [("skipped_iterations", str(cell.skipped)), *((key, double(time * 1e6)) for key, time in times)]
    figures += [("cv_pct", double(spread.cv * 100)), ("times_us", _microseconds(samples_s))]
    if cell.process_samples_s and len(cell.process_samples_s) > 1:
        figures.append(("per_process_max_times_us", _array([_microseconds(samples) for samples in cell.process_samples_s])))
    return _object(*figures)


def _microseconds(samples_s: list[float]) -> str:
    return _array([double(sample * 1e6) for sample in samples_s])


def _average(result: Result) -> str:
    average, minimum = result.average_busbw() / 1e9, minimum_gb_s(result)
    okay = '"unchecked"' if minimum is None else truth(average >= 0.9 * minimum)
    return _object(("bandwidth", double(average)), ("okay", okay))


def output_path(path: str | Path) -> Path | None:
    """Where -J PATH writes: PATH, or the first of PATH.0, PATH.1 ... that does not exist; None unless PATH ends in .json."""
    wanted = Path(path)
    if not wanted.name.lower().endswith(".json"):
        return None
    free, number = wanted, 0
    while free.exists():
        free = wanted.with_name(f"{wanted.name}.{number}")
        number += 1
    return free
