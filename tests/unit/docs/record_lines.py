"""What the files of a record say, as lines of numbers that belong together: a line of a text, a
size of a sweep, a method of a training.
"""

import itertools
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record_derived import DERIVED, by_seed

from busbw.core.result import Cell, Outcome, Result
from busbw.report import file_kinds, read
from busbw_accel.train.kinds import TrainResult
from busbw_accel.train.types import TrainingRuns, TrainRun

ROOT = Path(__file__).parents[3]
NUMBER = re.compile(r"(?<![A-Za-z_\d.])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
COMMAS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
NAMED = re.compile(r"(?:tests|benchmarks)/[\w./*-]+")  # files elsewhere that a README names
SWEEP = (b'"schema": "busbw', b'"schema":"busbw', b"out-of-place", b'{"version":')
FEW = 12  # values of a list that may each stand in a table
SMALL = 64 << 10  # bytes of the largest message whose time is latency
SHARE = (1.0, 100.0)
MILLI, MICRO, GIGA = (1e3,), (1e3, 1e6), (1e-9,)
ANY = (1.0, 1e3, 1e6, 1e-3, 1e-6, 1e-9, 100.0)
Value = tuple[float, int]  # a number without its sign, and how many of its decimal places are known
EXACT = 15


@dataclass(frozen=True)
class Line:
    """Numbers that belong together.

    `source`: their file, or the repeats of one run. `size`: the bytes of a message, None for
    others.
    """

    source: str
    values: list[Value]
    size: int | None = None


def lines(record: Path) -> list[Line]:
    """The lines of all files of a record, and of those elsewhere that its README names."""
    all_lines: list[Line] = []
    sweeps: dict[str, list[Result]] = {}
    trainings: dict[str, list[TrainingRuns]] = {}
    for path in _files(record):
        source = str(path.relative_to(record if path.is_relative_to(record) else ROOT))
        data = path.read_bytes()
        result = _result(data, path)
        if isinstance(result, Result):
            all_lines += _sweep(source, result)
            sweeps.setdefault(re.sub(r"(_1g)?(_\d)?\.\w+$", "", source), []).append(result)
        elif isinstance(result, TrainResult):
            all_lines += _training(source, result.training)
            trainings.setdefault(re.sub(r"(_\d)?\.\w+$", "", source), []).append(result.training)
        if path.suffix == ".json":
            is_read = isinstance(result, Result | TrainResult)
            all_lines += [] if is_read else _json(source, data, path)
        else:
            all_lines += (
                _loop(source, data.decode())
                if path.name.startswith("nccl_loop_")
                else _text(source, data.decode("utf-8", "replace"))
            )
    for source, results in sweeps.items():
        all_lines += _repeated(source, results)
    for source, runs in trainings.items():
        all_lines += _repeated_training(source, runs) if len(runs) > 1 else []
    return all_lines


def scaled(values: Iterable[float | None], scales: Sequence[float]) -> list[Value]:
    """The finite values in each of the units."""
    return [
        (abs(value * scale), EXACT)
        for value in values
        if value is not None and math.isfinite(value)
        for scale in scales
    ]


def _files(record: Path) -> Iterator[Path]:
    own_files = (
        path for path in sorted(record.rglob("*")) if path.suffix not in (".gz", ".md", ".c")
    )
    file_names = sorted(set(NAMED.findall((record / "README.md").read_text(encoding="utf-8"))))
    elsewhere = (
        path
        for name in file_names
        for path in sorted(ROOT.glob(name))
        if path.suffix in (".txt", ".csv", ".log", ".json")
    )
    yield from (path for path in itertools.chain(own_files, elsewhere) if path.is_file())


def _result(data: bytes, path: Path) -> Outcome | None:
    if not any(mark in data[:4000] for mark in SWEEP):
        return None
    with suppress(Exception):  # some texts only quote a table
        return read.read(data, path.name)
    return None


def _text(source: str, text: str) -> Iterator[Line]:
    for line in text.splitlines():
        values: list[Value] = []
        for word in NUMBER.findall(COMMAS.sub("", line)):
            value, places = (
                float(word),
                (EXACT if "e" in word.lower() else len(word.partition(".")[2])),
            )
            values += [(value, places), (value / 1e3, places + 3), (value / 1e6, places + 6)]
            values += [(value * 1e3, max(places - 3, 0)), (value * 100, max(places - 2, 0))]
        if values:
            yield Line(source, values)


def _loop(source: str, text: str) -> Iterator[Line]:
    """The output of nccl_loop.c on two ranks: bytes, and microseconds out of place and in place."""
    for size, *times in (
        map(float, line.split()) for line in text.splitlines() if line[:1].isdigit()
    ):
        yield Line(
            source,
            scaled([size / time for time in times], (1e-3,)) + [(time, 2) for time in times],
            int(size),
        )


def _json(source: str, data: bytes, path: Path) -> Iterator[Line]:
    """Of a file that busbw knows its text; of others what a program computes from it, if it has
    a text too, and else all numbers.
    """
    if (file_kind := file_kinds.read(data, path.name)) is not None:
        yield from _text(source, file_kind.text(None))
        return
    for document in _documents(data):
        if path.name in DERIVED:
            yield from (
                Line(source, scaled(values, (1.0,))) for values in DERIVED[path.name](document)
            )
        elif path.with_suffix(".txt").exists():
            yield from (Line(source, scaled(values, SHARE)) for values in by_seed(document))
        else:
            yield from (Line(source, scaled(values, ANY)) for values in _numbers_of(document))


def _documents(data: bytes) -> list[Any]:
    try:
        return [json.loads(data)]
    except ValueError:
        return [json.loads(line) for line in data.splitlines() if line.startswith(b"{")]


def summary(values: Sequence[float]) -> list[float]:
    """Median, least, most and mean."""
    return [statistics.median(values), min(values), max(values), statistics.fmean(values)]


def _listed(values: Sequence[Any]) -> list[float]:
    """Of a list of numbers its summary, and the numbers if they are few; nothing of other lists."""
    if not values or not all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    ):
        return []
    return summary(values) + (list(values) if len(values) <= FEW else [])


def _numbers_of(document: Any) -> Iterator[list[float]]:
    """The numbers of each object of a JSON document, and of each key of objects in a list."""
    if isinstance(document, dict):
        yield [
            number
            for value in document.values()
            for number in _listed(value if isinstance(value, list) else [value])
        ]
        # kernel times by CUDA events and by the profiler plugin
        if {"events_us", "plugin_us"} <= document.keys():
            events, plugin = document["events_us"], document["plugin_us"]
            yield [events, plugin, plugin - events, 100 * (plugin / events - 1)]
        children: list[Any] = list(document.values())
    else:
        children = document if isinstance(document, list) else [document]
        yield _listed(children)
        if children and all(isinstance(item, dict) for item in children):
            yield from (_listed([item.get(key) for item in children]) for key in children[0])
            children = children if len(children) <= 50 else []
    for child in children:
        if isinstance(child, dict | list):
            yield from _numbers_of(child)


def _cells(result: Result) -> Iterator[tuple[int, list[Cell]]]:
    for row in result.rows:
        yield (
            row.size_bytes,
            [cell for cell in (row.out_of_place, row.in_place) if cell is not None],
        )


def _sweep(source: str, result: Result) -> Iterator[Line]:
    small: list[float] = []
    for size, cells in _cells(result):
        times = [
            time for cell in cells for time in (cell.time_s, cell.op_s, cell.skew_s, cell.launch_s)
        ]
        yield Line(
            source, scaled(times, MICRO) + scaled([cell.busbw for cell in cells], GIGA), size
        )
        small += [cell.time_s for cell in cells if size <= SMALL]
    if small:
        yield Line(source, scaled(summary(small), MICRO))


def _repeated(source: str, results: list[Result]) -> Iterator[Line]:
    """All repeats of a run: at each size their faster placements, their first placements and the
    range of both; and their small sizes.
    """
    sizes: dict[int, list[list[Cell]]] = {}
    small: list[list[float]] = []
    for result in results:
        for size, cells in _cells(result):
            if cells:
                sizes.setdefault(size, []).append(cells)
        small.append(
            [cell.time_s for size, cells in _cells(result) if size <= SMALL for cell in cells]
        )
    for size, repeats in sizes.items():
        fastest = [min(cells, key=lambda cell: cell.time_s) for cells in repeats]
        times, rates = [cell.time_s for cell in fastest], [cell.busbw for cell in fastest]
        yield Line(
            f"{source}_N",
            scaled([*times, statistics.median(times)], MICRO)
            + scaled([*rates, statistics.median(rates)], GIGA),
            size,
        )
        yield Line(f"{source}_N", scaled(rates, GIGA), size)
        yield Line(f"{source}_N", scaled([cells[0].busbw for cells in repeats], GIGA), size)
        busbws = [cell.busbw for cells in repeats for cell in cells]
        yield Line(f"{source}_N", scaled([min(busbws), max(busbws)], GIGA), size)
    if all(small):
        yield Line(f"{source}_N", scaled([statistics.median(times) for times in small], MICRO))
        yield Line(f"{source}_N", scaled([max(times) for times in small], MICRO))


def _training(source: str, training: TrainingRuns) -> Iterator[Line]:
    baseline_s = training.step_s(training.baseline)
    for method in dict.fromkeys(run.method for run in training.runs):
        runs = [run for run in training.of(method) if not run.failed]
        for group in [runs, *([run] for run in runs if len(runs) > 1)]:
            if group:
                yield Line(
                    source,
                    _rates(training, method) + _steps(group, baseline_s) + _used(training, group),
                )
        parts = (
            training.silent_s(method),
            training.exposed_s(method),
            training.codec_s(method),
            training.network_s(method),
        )
        yield Line(source, _rates(training, method) + scaled(parts, MILLI))


def _repeated_training(source: str, trainings: list[TrainingRuns]) -> Iterator[Line]:
    """Of each method the share of the baseline's rate in all repeats of a training."""
    for method in dict.fromkeys(run.method for run in trainings[0].runs):
        yield Line(
            f"{source}_N", scaled([training.efficiency(method) for training in trainings], (100.0,))
        )


def _rates(training: TrainingRuns, method: str) -> list[Value]:
    rate = training.rate(method)
    return scaled([rate and rate[0]], (1.0,)) + scaled([training.efficiency(method)], (100.0,))


def _steps(runs: list[TrainRun], baseline_s: float | None) -> list[Value]:
    steps = [step for run in runs for step in run.steps_s]
    values = scaled(summary(steps), MILLI)
    if baseline_s:
        step_s = statistics.median(steps)
        values += (
            scaled([step_s / baseline_s], (1.0,))
            + scaled([baseline_s / step_s], (100.0,))
            + scaled([step_s - baseline_s], MILLI)
        )
    return values


def _used(training: TrainingRuns, runs: list[TrainRun]) -> list[Value]:
    """Bytes on the wire and in memory, and the loss."""
    values = scaled([sent for run in runs for sent in (run.counted, run.seen)], (1e-6,)) + scaled(
        [run.loss for run in runs], (1.0,)
    )
    for use in (run.states for run in runs if run.states is not None):
        values += scaled([use.start_s], (1.0,)) + scaled(
            [use.gpu_bytes, use.gpu_reserved, use.host_bytes, use.pinned], GIGA
        )
        bytes_per_parameter = [
            moved_bytes / training.parameters
            for moved_bytes in (use.down_bytes, use.up_bytes)
            if moved_bytes is not None
        ]
        values += scaled(bytes_per_parameter, (1.0,)) + scaled(
            [use.down_s, use.update_s, use.up_s, use.waited_s], MILLI
        )
    return values
