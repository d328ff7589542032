"""Reads the text of nccl-tests (every release, and RCCL's) back into a Result, from any log that holds it.

What the log does not state stays empty; figures have the precision of the print. NCCL's own lines may stand between and inside rows.
A log with several tables holds several runs: `read_all` gives each, `read` one of them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from busbw.core.collectives import Collective
from busbw.core.errors import UsageError
from busbw.core.finding import Finding, Verdict
from busbw.core.result import SCHEMA, Cell, Device, Library, Result, Row, World
from busbw.core.sweep import SweepSpec
from busbw.views import nccl_tests_rows as rows
from busbw.views import reading
from busbw.views.words import counted, nccl_version_number, op_of_column

# What launchers put before each line: Open MPI's --tag-output and srun's --label.
LAUNCHER = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:[ \t]?|[ \t]*\d+: )", re.MULTILINE)
NCCL_LINE = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d[ T][\d:.]+\] )?[A-Za-z][\w.-]{0,252}:\d+:\d+ (?:\[\d+\] )?NCCL (?:INFO|WARN|TRACE|ERROR)[^\n]*\n?"
)
START = re.compile(r"#\s*(?:Writing JSON output to |nccl-tests version |Collective test starting: |nThread:? \d)")
COMMAND = re.compile(r"(?<![\w./-])([\w./-]*_perf(?:_mpi)?)\s+-\w")
SPEC_PATTERNS: tuple[tuple[str, str], ...] = (
    ("nthreads", r"nThread:?\s+(\d+)"),
    ("ngpus", r"nGpus:?\s+(\d+)"),
    ("min_bytes", r"minBytes:?\s+(\d+)"),
    ("max_bytes", r"maxBytes:?\s+(\d+)"),
    ("step_factor", r"step:?\s+(\d+)\(factor\)"),
    ("step_bytes", r"step:?\s+(\d+)\(bytes\)"),
    ("warmup_iters", r"warmup ?[iI]ters:?\s+(\d+)"),
    ("iters", r"(?<!warmup )(?<!agg )\biters:?\s+(\d+)"),
    ("agg_iters", r"agg iters:?\s+(\d+)"),
    ("check", r"validation:?\s+(\d+)"),
    ("cudagraph", r"graph:?\s+(\d+)"),
    ("unalign", r"unalign:?\s+(\d+)"),
)
SEVERAL_TABLES = "log.tables"  # the id of a finding
MEMORY_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@dataclass
class Run:
    """What was read so far from one table and the lines around it."""

    program: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    nccl: int = 0
    spec: dict[str, Any] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    processes: dict[tuple[str, str], int] = field(default_factory=dict)
    reduced_max_bytes: int | None = None
    titles: rows.Columns | None = None
    lines: list[rows.Line] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    out_of_bounds: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    concluded: bool = False

    def in_table(self) -> bool:
        """Whether its titles or rows have been seen."""
        return bool(self.titles or self.lines)


Handler = Callable[[Run, re.Match[str]], None]


def _field(name: str, value: Callable[[re.Match[str]], object]) -> Handler:
    """Sets a field of the run."""
    return lambda run, match: setattr(run, name, value(match))


def _option(name: str, value: Callable[[re.Match[str]], object]) -> Handler:
    """Sets a field of SweepSpec."""

    def handle(run: Run, match: re.Match[str]) -> None:
        run.spec[name] = value(match)

    return handle


def _versions(run: Run, match: re.Match[str]) -> None:
    run.versions = {"nccl-tests": match[1]}
    if match[2] != match[3]:
        run.versions["nccl-headers"] = match[2]
    run.nccl = int(match[3])


def _nccl_banner(run: Run, match: re.Match[str]) -> None:
    run.nccl = run.nccl or nccl_version_number(match[1])


def _spec(run: Run, match: re.Match[str]) -> None:
    found = ((name, re.search(pattern, match[0])) for name, pattern in SPEC_PATTERNS)
    run.spec |= {name: int(value[1]) for name, value in found if value}


def _device(run: Run, match: re.Match[str]) -> None:
    rank, group, pid, host, index, bus, name = match.groups()
    process = run.processes.setdefault((host, pid), len(run.processes))
    bus = "" if bus == "0000:00:00" else bus
    run.devices.append(Device(int(rank), int(pid), host, int(index), bus, name.strip(), int(group or 0), process=process))


def _blocking(match: re.Match[str]) -> int:
    return 3 if "outer iteration" in match[1] else 2 if "no barrier" in match[1] else 1


def _per_iteration(run: Run, match: re.Match[str]) -> None:
    run.spec |= {"per_iter_timing": 1, "per_iter_skip": int(match[1] or 0)}


def _memory(run: Run, match: re.Match[str]) -> None:
    amounts = [float(value) * MEMORY_UNITS[unit] for value, unit in re.findall(r"([\d.]+) (B|KB|MB|GB)\b", match[1])]
    run.memory = dict(zip(("init", "user", "collective", "total"), map(round, amounts), strict=False))
    run.spec["memory"] = 1


def _error(run: Run, match: re.Match[str]) -> None:
    run.errors.append(match[1])


FACTS: tuple[tuple[re.Pattern[str], Handler], ...] = (
    (re.compile(r"#\s*nccl-tests version (\S+) nccl-headers=(\d+) nccl-library=(\d+)"), _versions),
    (re.compile(r"NCCL version (\d+\.\d+\.\d+)"), _nccl_banner),
    (re.compile(r"#\s*Collective test starting:\s*(\S+)"), _field("program", lambda match: match[1])),
    (re.compile(r"#\s*nThread:? \d.*"), _spec),
    (re.compile(r"#\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+) on\s+(\S+) device\s+(\d+) \[([^\]]*)\]\s*(.*)"), _device),
    (re.compile(r"#\s*Reducing maxBytes to (\d+)"), _field("reduced_max_bytes", lambda match: int(match[1]))),
    (re.compile(r"#\s*Blocking Enabled: (.*)"), _option("blocking", _blocking)),
    (re.compile(r"#\s*Per-Iteration Report:[^;]*;[^;]*(?:; summary skips first (\d+))?"), _per_iteration),
    (re.compile(r"#\s*Parallel Init Enabled"), _option("parallel_init", lambda match: 1)),
    (re.compile(r"#\s*Writing JSON output to (.+)"), _option("output_file", lambda match: match[1])),
    (re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)"), _field("out_of_bounds", lambda match: int(match[1]))),
    (re.compile(r"#\s*Avg bus bandwidth\s*:"), _field("concluded", lambda match: True)),
    (re.compile(r"#\s*GPU memory usage\s*:(.*)"), _memory),
    (re.compile(r"#\s*error: (.+)"), _error),
    (re.compile(r"(\S+: Test (?:NCCL|CUDA) failure .*|\S+: Test timeout .*)"), _error),
)


def _take(run: Run, line: str) -> None:
    """Add what one line states."""
    titles = rows.columns(line)
    if titles:
        run.titles = titles
    elif rows.starts_row(line):
        row = None if run.concluded else rows.parse(line, run.titles)
        if row:
            run.lines.append(row)
        elif run.titles and not run.concluded:
            run.unread.append(line.strip())
    else:
        for pattern, handle in FACTS:
            match = pattern.match(line.strip())
            if match:
                handle(run, match)
                return


def _own_lines(text: str) -> list[str]:
    """The lines without launchers' labels and NCCL's own messages, so that a row which a message cut is whole again."""
    lines = LAUNCHER.sub("", text).splitlines(keepends=True)
    return "".join(NCCL_LINE.sub("", line) if "NCCL " in line else line for line in lines).splitlines()


def _runs(text: str) -> Iterator[Run]:
    run, command = Run(), ""
    for line in _own_lines(text):
        if run.in_table() and (START.match(line.strip()) or (run.concluded and rows.columns(line))):
            if run.lines:
                yield run
            run = Run()
        used = COMMAND.search(line)
        command = used[1] if used and reading.program_collective(used[1]) else command
        if not run.program and not run.in_table() and command:
            run.program = command.rsplit("/", 1)[-1]
        _take(run, line)
    if run.lines:
        yield run


def _cell(side: rows.Side | None, row: Row, collective: Collective, ranks: int) -> Cell | None:
    if side is None:
        return None
    algbw, seconds = side.algbw * 1e9, side.time_us / 1e6
    time_s = reading.full_time_s(collective, row, ranks, algbw, seconds) if side.cpu_time else seconds
    return Cell(time_s, algbw, side.busbw * 1e9, side.wrong, seconds if side.cpu_time else None)


def _row(line: rows.Line, collective: Collective, iters: int, ranks: int) -> Row:
    op, dtype = op_of_column(collective, line.redop), reading.element_type(line.dtype)
    row = Row(line.size, line.count, dtype, op, line.root, None, None, iters, line.timestamp)
    row.out_of_place = _cell(line.out_of_place, row, collective, ranks)
    row.in_place = _cell(line.in_place, row, collective, ranks)
    return row


def _unread(lines: list[str]) -> list[Finding]:
    if not lines:
        return []
    message = f"{counted(len(lines), 'line')} of the table could not be read"
    fix = "read the JSON of the run (-J run.json) instead of its text"
    return [Finding("log.rows", Verdict.WARN, message, f"the first is: {lines[0]}", fix)]


def _result(run: Run, given: str | None) -> Result:
    collective = reading.resolve(given, reading.program_collective(run.program), "nccl-tests text")
    groups = len({device.group for device in run.devices}) or 1
    ranks = len(run.devices) // groups
    iters = run.spec.get("iters", 0)
    lines = [_row(line, collective, iters, ranks) for line in run.lines]
    sizes = [row.size_bytes for row in lines]
    spec = {"min_bytes": min(sizes), "max_bytes": max(sizes)} | reading.series(lines) | run.spec
    if run.titles:
        spec |= {"report_cputime": int("cputime" in run.titles.side), "report_timestamps": int(run.titles.timestamp)}
        spec |= {"per_iter_timing": int("i_min" in run.titles.side)}
    return Result(
        schema=SCHEMA,
        tool=f"nccl-tests {run.versions.get('nccl-tests', '')}".strip(),
        spec=SweepSpec(collective=collective.name, **spec),
        program=run.program,
        library=Library("nccl" if run.nccl else "", run.nccl, run.versions),
        world=World(run.devices, len({device.process for device in run.devices}), groups),
        reduced_max_bytes=run.reduced_max_bytes,
        rows=lines,
        findings=_unread(run.unread),
        out_of_bounds=run.out_of_bounds,
        memory=run.memory,
        errors=run.errors,
        complete=run.concluded,
    )


def read_all(text: str, collective: str | None = None) -> list[Result]:
    """Every run with at least one row, in order; UsageError where there is none, or where neither log nor caller names the collective."""
    return [_result(run, collective) for run in _with_rows(text)]


def _with_rows(text: str) -> list[Run]:
    found = list(_runs(text))
    if not found:
        raise UsageError("nccl-tests text: no row of a table in it", "give the standard output of an nccl-tests run, header lines included")
    return found


def read(text: str, collective: str | None = None, table: int | None = None) -> Result:
    """The run of a table, from 1 on; without a number the first, with a finding where there are more. UsageError as `read_all`."""
    runs = _with_rows(text)
    if table and table > len(runs):
        raise UsageError(f"--table {table}: the log holds {counted(len(runs), 'table')}", f"give a number from 1 to {len(runs)}")
    result = _result(runs[(table or 1) - 1], collective)
    if len(runs) > 1 and table is None:
        message = f"the log holds {len(runs)} tables; this is the first"
        evidence = f"rows per table: {', '.join(str(len(run.lines)) for run in runs)}"
        result.findings.append(Finding(SEVERAL_TABLES, Verdict.WARN, message, evidence, f"choose another with --table 2 to {len(runs)}"))
    return result
