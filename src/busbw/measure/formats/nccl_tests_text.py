"""The text that nccl-tests 2.20.0 prints, byte for byte: scripts parse it by columns and spaces.

The release states its commit behind its version. Its table is that of 2.19.6. Where busbw must
differ: an engine without NCCL prints version 0, and a rank without a PCI address
prints 0000:00:00.
"""

import re
from itertools import groupby

from busbw.core.result import Cell, RankDevice, Result, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.measure.formats.reading import program_collective
from busbw.stats.intervals import summary
from busbw.ui.number_formats import local_time, minimum_gb_s, op_column, printed_time_s

VERSION, COMMIT = "2.20.0", "b4d5bee"  # the commit of the release
BLOCKING = {
    1: "wait and barrier after each inner iteration (-m) ",
    2: "wait after each inner iteration (-m), no barrier ",
    3: "wait and barrier after each outer iteration (-n); time excludes barrier ",
}
DEVICE_TEXT_BYTES = 2048  # of one process, with the terminating zero
SIDE = (7, 6, 6, 6)
PER_ITERATION = (7, 7, 7, 7)
JSON_NAME = re.compile(r"\.json(\.\d+)?$", re.IGNORECASE)  # .N where the name existed already
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


def number(value: float, width: int) -> str:
    """`value` with the most decimals (2, 1, 0) that fit `width`, else in scientific notation."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def header(result: Result) -> str:
    """Everything up to the three lines of column titles, those included."""
    lines = []
    if JSON_NAME.search(result.spec.output_file):
        lines.append(f"# Writing JSON output to {result.spec.output_file}")
    lines += [*_opening(result), "#", "# Using devices"]
    text = "\n".join(lines) + "\n"
    for _, devices in groupby(
        result.world.devices, lambda device: (device.process, device.host, device.pid)
    ):
        text += _process_devices(list(devices))
    if result.reduced_max_bytes is not None:
        text += f"#\n# Reducing maxBytes to {result.reduced_max_bytes} due to memory limitation\n"
    return text + "#\n" + "".join(line + "\n" for line in _titles(result.spec))


def _opening(result: Result) -> list[str]:
    """The lines before the devices; of a log that was read, those that it had."""
    spec, library = result.spec, result.library
    was_read = result.tool.startswith(("nccl-tests", "rccl-tests"))
    name = "rccl-tests" if "rccl-tests" in library.versions else "nccl-tests"
    headers = library.versions.get("nccl-headers", str(library.nccl))
    step = f"{spec.step_factor}(factor)" if spec.step_factor > 1 else f"{spec.step_bytes}(bytes)"
    lines = []
    if name in library.versions or result.argv or not was_read:
        lines.append(
            f"# {name} version {_version(library.versions, name)} nccl-headers={headers}"
            f" nccl-library={library.nccl}"
        )
    lines.append(f"# Collective test starting: {_program(result)}")
    if spec.iters or not was_read:
        lines.append(
            f"# nThread {spec.nthreads} nGpus {spec.ngpus} minBytes {spec.min_bytes} maxBytes"
            f" {spec.max_bytes} step: {step} warmup iters: {spec.warmup_iters} iters: {spec.iters}"
            f" agg iters: {spec.agg_iters} validation: {spec.check} graph: {spec.cudagraph}"
            f" unalign: {spec.unalign}"
        )
    if spec.blocking in BLOCKING:
        lines.append(f"# Blocking Enabled: {BLOCKING[spec.blocking]}")
    if spec.per_iter_timing:
        line = "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows"
        if spec.per_iter_skip:
            line += f"; summary skips first {spec.per_iter_skip} iterations"
        lines.append(f"{line} ")
    if spec.parallel_init:
        lines.append("# Parallel Init Enabled: threads call into NcclInitRank concurrently ")
    return lines


def _version(versions: dict[str, str], name: str) -> str:
    """The release as it names itself: with its commit, from 2.20.0 on."""
    if name not in versions:
        return f"{VERSION} ({COMMIT})"
    commit = versions.get(f"{name}-commit")
    return f"{versions[name]} ({commit})" if commit else versions[name]


def _program(result: Result) -> str:
    """The program's name as nccl-tests prints it.

    Nothing else in the text names the collective, so other programs get such a name.
    """
    if program_collective(result.program):
        return result.program
    return f"{result.spec.collective}_perf"


def _process_devices(devices: list[RankDevice]) -> str:
    text = "".join(map(_device_line, devices))
    return text if len(text) < DEVICE_TEXT_BYTES else text[: DEVICE_TEXT_BYTES - 5] + "...\n"


def _device_line(device: RankDevice) -> str:
    host, bus = device.host.split(".")[0], device.bus or "0000:00:00"
    return (
        f"#  Rank {device.rank:2d} Group {device.group:2d} Pid {device.pid:6d} on {host:>10}"
        f" device {device.index:2d} [{bus}] {device.name}\n"
    )


def _titles(spec: SweepSpec) -> tuple[str, str, str]:
    time = "cputime" if spec.report_cputime else "time"
    titles, units = [time, "algbw", "busbw", "#wrong"], ["(us)", "(GB/s)", "(GB/s)", ""]
    # The spaces of the original.
    over = f"{'':11}out-of-place{'':23}in-place{'':10}"
    widths: tuple[int, ...] = SIDE
    if spec.per_iter_timing:
        titles += ["i_min", "i_max", "i_p99", "i_cv%"]
        units += ["(us)", "(us)", "(us)", "(%)"]
        over = f"{'':14}out-of-place (+ per-iteration){'':32}in-place (+ per-iteration)"
        widths += PER_ITERATION
    stamp = ("timestamp", TIME_FORMAT, 19) if spec.report_timestamps else ("", "", 0)

    def line(left: tuple[str, ...], side: list[str], last: str) -> str:
        sides = "".join(
            f"  {text:>{width}}" for text, width in zip(side * 2, widths * 2, strict=True)
        )
        return f"# {_left_columns(left)}{sides} {last:>{stamp[2]}}"

    return (
        f"# {_left_columns(('', '', '', '', ''))}{over}",
        line(("size", "count", "type", "redop", "root"), titles, stamp[0]),
        line(("(B)", "(elements)", "", "", ""), units, stamp[1]),
    )


def _left_columns(texts: tuple[str, ...]) -> str:
    return "  ".join(
        f"{text:>{width}}" for text, width in zip(texts, (10, 12, 8, 6, 6), strict=True)
    )


def row(result: Result, row: ResultRow) -> str:
    """One line of the table. A placement that was not run is left blank."""
    texts = (
        str(row.size_bytes),
        str(row.count),
        row.dtype,
        op_column(result.spec.row, row),
        str(row.root),
    )
    text = f"  {_left_columns(texts)}"
    text += _cell(result, row.out_of_place) + _cell(result, row.in_place)
    if result.spec.report_timestamps:
        text += f"{local_time(row.timestamp):>21}"
    return f"{text}\n"


def _cell(result: Result, cell: Cell | None) -> str:
    widths = SIDE + PER_ITERATION if result.spec.per_iter_timing else SIDE
    if cell is None:
        return " " * sum(width + 2 for width in widths)
    time_us = printed_time_s(result, cell) * 1e6
    # Unchecked is one column narrower than a number in the original.
    wrong = "    N/A" if cell.wrong is None else f"  {float(cell.wrong):6g}"
    algbw, busbw = number(cell.algbw / 1e9, 6), number(cell.busbw / 1e9, 6)
    text = f"  {number(time_us, 7)}  {algbw}  {busbw}{wrong}"
    return text + _spread(cell) if result.spec.per_iter_timing else text


def _spread(cell: Cell) -> str:
    if not cell.kept_s:
        return f"  {'N/A':>7}" * 4
    spread = summary(cell.kept_s)
    figures = (spread.min_s * 1e6, spread.max_s * 1e6, spread.p99_s * 1e6, spread.cv * 100)
    return "".join(f"  {number(value, 7)}" for value in figures)


def footer(result: Result) -> str:
    average, minimum = result.average_busbw() / 1e9, minimum_gb_s(result)
    data_verdict = "FAILED" if result.wrong() else "OK"
    verdict = ""
    if minimum is not None:
        verdict = "FAILED" if average < 0.9 * minimum else "OK"
    lines = [
        f"# {'Out of bounds values':<20} : {result.out_of_bounds} {data_verdict}",
        f"# {'Avg bus bandwidth':<20} : {average:g} {verdict}",
        "#",
        f"# Collective test concluded: {_program(result)}",
    ]
    if result.memory:
        lines.append(_memory(result.memory))
    return "\n".join([*lines, "#", f"# error: {result.errors[-1]}" if result.errors else "", ""])


def _memory(memory: dict[str, int]) -> str:
    parts = {
        "Initialization": memory.get("init", 0),
        "User-Allocated": memory.get("user", 0),
        "Collective": memory.get("collective", 0),
    }
    total = memory.get("total", sum(parts.values()))
    text = " | ".join(f"{name} {_amount(amount)}" for name, amount in parts.items())
    return f"# {'GPU memory usage':<20} : {text} | Total  {_amount(total)}"


def _amount(size_bytes: int) -> str:
    value, unit = float(size_bytes), "B"
    for larger in ("KB", "MB", "GB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    decimals = 0
    if abs(value) < 100:
        decimals = 2 if abs(value) < 10 else 1
    return f"{value:.{decimals}f} {unit}"
