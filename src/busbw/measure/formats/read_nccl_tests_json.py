"""Reads the JSON of nccl-tests (-J; format versions 1 to 4) back into a Result.

Whole rows of a file that was cut off are kept, and the result is marked incomplete. The averages
are computed again from the rows, so the misspelt key `bandwidith` of older releases does no harm.
Unknown keys of newer versions are ignored.
"""

import getopt
from typing import Any

import msgspec

from busbw.core.collectives import Collective
from busbw.core.env import shown
from busbw.core.errors import UsageError
from busbw.core.masking import masked, masked_words
from busbw.core.options import OPTIONS
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sizes import parse_int
from busbw.core.sweep import SweepSpec
from busbw.measure.formats import log_checks, nccl_kernels, reading
from busbw.measure.formats.nccl_tests_json import (
    Figures,
    NcclTestsDevice,
    NcclTestsDocument,
    NcclTestsRow,
    Number,
    Spread,
)
from busbw.ui.number_formats import op_of_column

# Options that only `args` of the file has.
FROM_ARGS = (
    "blocking",
    "run_cycles",
    "timeout",
    "report_cputime",
    "average",
    "local_register",
    "cta_policy",
    "stream_null",
    "memory",
    "unalign",
    "report_timestamps",
    "device_implementation",
    "device_cta_count",
    "tuning",
)
HINT = "give the file that nccl-tests wrote with -J"


def of_document(document: object, whole: bool, collective: str | None = None) -> Result:
    """The run in a parsed document; `whole` is False if its end was missing.

    UsageError if the document is not nccl-tests' JSON, or if neither it nor the caller names the
    collective.
    """
    if not whole and isinstance(document, dict) and isinstance(document.get("results"), list):
        document["results"] = [
            row
            for row in document["results"]
            if isinstance(row, dict) and "actual_iterations" in row
        ]
    try:
        run = msgspec.convert(document, NcclTestsDocument)
    except msgspec.ValidationError as error:
        keys = list(document) if isinstance(document, dict) else []
        content = f"its keys are {', '.join(keys[:6])}" if keys else "an empty object"
        if set(keys) & {"config", "results", "nccl_version", "start_time"}:
            raise UsageError(f"nccl-tests JSON: {error}; {content}", HINT) from error
        raise UsageError(f"JSON that busbw does not know; {content}", reading.FORMATS) from error
    return _result(run, whole, collective)


def _result(run: NcclTestsDocument, whole: bool, collective: str | None) -> Result:
    program = run.args[0].replace("\\", "/").rsplit("/", 1)[-1] if run.args else ""
    name = reading.program_collective(program) or reading.argument_collective(run.args[1:])
    collective_row = reading.resolve(collective, name, "nccl-tests JSON: args")
    devices = _devices(run.config.devices, max(1, run.config.nthreads * run.config.ngpus))
    groups = len({device.group for device in devices}) or 1
    ranks = len(devices) // groups
    rows = [_row(line, collective_row, run.config.iters, ranks) for line in run.results or []]
    environment: dict[str, str] = {}
    for pair in run.env:
        variable, _, value = pair.partition("=")
        environment[variable] = shown(variable, value)
    errors = [masked(error) for error in run.errors or [] if error]
    return Result(
        findings=[
            *log_checks.of_ratio(collective_row, rows, ranks),
            *log_checks.failed(average_failed=False, failures=errors),
        ],
        tool="nccl-tests",
        spec=_spec(run, collective_row, rows),
        argv=masked_words(run.args),
        program=program,
        start=run.start_time,
        end=run.end_time or "",
        library=EngineLibrary("nccl" if run.nccl_version else "", run.nccl_version),
        world=World(devices, len({device.process for device in devices}), groups),
        environment=environment,
        rows=rows,
        out_of_bounds=run.out_of_bounds.count if run.out_of_bounds else 0,
        errors=errors,
        complete=whole and run.end_time is not None and run.out_of_bounds is not None,
    )


def _options(args: list[str]) -> dict[str, str]:
    """Option texts by SweepSpec field, read as getopt_long does.

    Empty for a command line that getopt_long refuses.
    """
    short = "".join(f"{row.short}:" for row in OPTIONS)
    long = [f"{row.long}=" for row in OPTIONS]
    try:
        pairs, _ = getopt.gnu_getopt(args, short, long)
    except getopt.GetoptError:
        return {}
    fields = {f"-{row.short}": row.field for row in OPTIONS}
    fields |= {f"--{row.long}": row.field for row in OPTIONS}
    return {fields[name]: text for name, text in pairs}


def _spec(run: NcclTestsDocument, collective: Collective, rows: list[ResultRow]) -> SweepSpec:
    config: dict[str, Any] = msgspec.structs.asdict(run.config)
    del config["devices"]
    for name, value in config.items():
        if isinstance(value, str):
            config[name] = int(value == "true")
    options = _options(run.args[1:])
    from_args = {field: parse_int(options[field]) for field in FROM_ARGS if field in options}
    if not config["blocking"]:
        from_args["blocking"] = 0
    config |= {"output_file": options.get("output_file", "")} | from_args | reading.series(rows)
    return SweepSpec(collective=collective.name, **config)


def _devices(entries: list[NcclTestsDevice], per_process: int) -> list[RankDevice]:
    """A device per rank.

    nccl-tests names the first of each process. The others follow it in rank and index, and their
    bus and name are unknown. busbw names all of them, also where -g asked for several GPUs and each
    became a process: then there are ranks between the multiples of -g.
    """
    processes: dict[tuple[str, int], int] = {}
    devices = []
    for entry in entries:
        process = processes.setdefault((entry.hostname, entry.pid), len(processes))
        bus = "" if entry.device_hex == "0000:00:00" else entry.device_hex
        devices.append(
            RankDevice(
                entry.rank,
                entry.pid,
                entry.hostname,
                entry.device,
                bus,
                entry.device_info,
                entry.group,
                process=process,
            )
        )
    if len(processes) < len(devices) or any(device.rank % per_process for device in devices):
        return devices
    all_devices = []
    for first in devices:
        all_devices.append(first)
        for offset in range(1, per_process):
            rank, index = first.rank + offset, first.index + offset
            follower = msgspec.structs.replace(first, rank=rank, index=index, bus="", name="")
            all_devices.append(follower)
    return all_devices


def _row(line: NcclTestsRow, collective: Collective, iters: int, ranks: int) -> ResultRow:
    actual = iters if line.actual_iterations is None else line.actual_iterations
    dtype, op = reading.element_type(line.type), op_of_column(collective, line.redop)
    try:
        row = ResultRow(line.size, line.count, dtype, op, int(line.root), None, None, actual)
        if line.tuning:
            tuning = line.tuning
            row.ran = nccl_kernels.kernel(tuning.algo, tuning.proto, str(tuning.channels))
        row.out_of_place = _cell(
            line.out_of_place, line.out_of_place_per_iter, row, collective, ranks
        )
        row.in_place = _cell(line.in_place, line.in_place_per_iter, row, collective, ranks)
    except (ValueError, OverflowError) as error:  # infinity is no integer
        raise UsageError(f"nccl-tests JSON: the row of {line.size} bytes: {error}", HINT) from error
    return row


def _cell(
    figures: Figures | None,
    spread: Spread | None,
    row: ResultRow,
    collective: Collective,
    ranks: int,
) -> Cell | None:
    if figures is None:
        return None
    algbw = float(figures.alg_bw) * 1e9
    cpu_time_s = None if figures.cpu_time is None else float(figures.cpu_time) / 1e6
    if figures.time is not None:
        time_s = float(figures.time) / 1e6
    elif cpu_time_s is not None:
        time_s = reading.full_time_s(collective, row, ranks, algbw, cpu_time_s)
    else:
        raise ValueError("neither 'time' nor 'cpu_time'")
    wrong = None if figures.nwrong is None else int(float(figures.nwrong))
    cell = Cell(time_s, algbw, float(figures.bus_bw) * 1e9, wrong, cpu_time_s)
    if spread:
        cell.skipped, cell.samples_s = spread.skipped_iterations, _seconds(spread.times_us)
        if spread.per_process_max_times_us:
            cell.process_samples_s = [_seconds(times) for times in spread.per_process_max_times_us]
    return cell


def _seconds(times_us: list[Number]) -> list[float]:
    return [float(time) / 1e6 for time in times_us]
