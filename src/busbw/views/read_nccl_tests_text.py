"""Reads the text of nccl-tests (every release, and RCCL's) back into a Result, from any log that holds it.

What the log does not state stays empty; figures have the precision of the print. NCCL's own lines may stand between and inside rows.
A log with several tables holds several runs.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from busbw.core.errors import UsageError
from busbw.core.finding import LOG_ROWS, LOG_TABLES, Finding, Verdict
from busbw.core.result import Device, Library, Result, Row, World
from busbw.core.sizes import counted
from busbw.core.sweep import SweepSpec
from busbw.views import nccl_tests_rows as rows
from busbw.views import reading
from busbw.views.words import nccl_version_number

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
MEMORY_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@dataclass
class Run:
    """What was read so far from one table and the lines around it."""

    program: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    nccl: int = 0
    banner: int = 0  # the version that NCCL itself prints
    spec: dict[str, Any] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    reduced_max_bytes: int | None = None
    titles: rows.Columns | None = None
    lines: list[Row] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    out_of_bounds: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    concluded: bool = False


Changes = Callable[[re.Match[str]], dict[str, Any]]


def _spec(match: re.Match[str]) -> dict[str, Any]:
    found = ((name, re.search(pattern, match[0])) for name, pattern in SPEC_PATTERNS)
    return {"spec": {name: int(value[1]) for name, value in found if value}}


def _device(match: re.Match[str]) -> dict[str, Any]:
    rank, group, pid, host, index, bus, name = match.groups()
    bus = "" if bus == "0000:00:00" else bus
    return {"devices": [Device(int(rank), int(pid), host, int(index), bus, name.strip(), int(group or 0))]}


def _blocking(match: re.Match[str]) -> dict[str, Any]:
    return {"spec": {"blocking": 3 if "outer iteration" in match[1] else 2 if "no barrier" in match[1] else 1}}


def _memory(match: re.Match[str]) -> dict[str, Any]:
    amounts = [float(value) * MEMORY_UNITS[unit] for value, unit in re.findall(r"([\d.]+) (B|KB|MB|GB)\b", match[1])]
    return {"memory": dict(zip(("init", "user", "collective", "total"), map(round, amounts), strict=False)), "spec": {"memory": 1}}


def _versions(match: re.Match[str]) -> dict[str, Any]:
    headers = {"nccl-headers": match[2]} if match[2] != match[3] else {}
    return {"versions": {"nccl-tests": match[1]} | headers, "nccl": int(match[3])}


# A line's pattern, and what it changes in a Run.
FACTS: tuple[tuple[re.Pattern[str], Changes], ...] = (
    (re.compile(r"#\s*nccl-tests version (\S+) nccl-headers=(\d+) nccl-library=(\d+)"), _versions),
    (re.compile(r"NCCL version (\d+\.\d+\.\d+)"), lambda match: {"banner": nccl_version_number(match[1])}),
    (re.compile(r"#\s*Collective test starting:\s*(\S+)"), lambda match: {"program": match[1]}),
    (re.compile(r"#\s*nThread:? \d.*"), _spec),
    (re.compile(r"#\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+) on\s+(\S+) device\s+(\d+) \[([^\]]*)\]\s*(.*)"), _device),
    (re.compile(r"#\s*Reducing maxBytes to (\d+)"), lambda match: {"reduced_max_bytes": int(match[1])}),
    (re.compile(r"#\s*Blocking Enabled: (.*)"), _blocking),
    (
        re.compile(r"#\s*Per-Iteration Report:[^;]*;[^;]*(?:; summary skips first (\d+))?"),
        lambda match: {"spec": {"per_iter_timing": 1, "per_iter_skip": int(match[1] or 0)}},
    ),
    (re.compile(r"#\s*Parallel Init Enabled"), lambda match: {"spec": {"parallel_init": 1}}),
    (re.compile(r"#\s*Writing JSON output to (.+)"), lambda match: {"spec": {"output_file": match[1]}}),
    (re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)"), lambda match: {"out_of_bounds": int(match[1])}),
    (re.compile(r"#\s*Avg bus bandwidth\s*:"), lambda match: {"concluded": True}),
    (re.compile(r"#\s*GPU memory usage\s*:(.*)"), _memory),
    (re.compile(r"#\s*error: (.+)"), lambda match: {"errors": [match[1]]}),
    (re.compile(r"(\S+: Test (?:NCCL|CUDA) failure .*|\S+: Test timeout .*)"), lambda match: {"errors": [match[1]]}),
)


def _apply(run: Run, changes: dict[str, Any]) -> None:
    """Dicts are merged, lists extended, other values set."""
    for name, value in changes.items():
        before = getattr(run, name)
        setattr(run, name, before | value if isinstance(value, dict) else before + value if isinstance(value, list) else value)


def _take(run: Run, line: str) -> None:
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
        for pattern, changes in FACTS:
            match = pattern.match(line.strip())
            if match:
                _apply(run, changes(match))
                return


def _own_lines(text: str) -> list[str]:
    """The lines without launchers' labels and NCCL's own messages, so that a row which a message cut is whole again."""
    lines = LAUNCHER.sub("", text).splitlines(keepends=True)
    return "".join(NCCL_LINE.sub("", line) if "NCCL " in line else line for line in lines).splitlines()


def _runs(text: str) -> Iterator[Run]:
    run, command = Run(), ""
    for line in _own_lines(text):
        in_table = bool(run.titles or run.lines)
        if in_table and (START.match(line.strip()) or (run.concluded and rows.columns(line))):
            if run.lines:
                yield run
            run, in_table = Run(), False
        used = COMMAND.search(line)
        command = used[1] if used and reading.program_collective(used[1]) else command
        if not run.program and not in_table and command:
            run.program = command.rsplit("/", 1)[-1]
        _take(run, line)
    if run.lines:
        yield run


def _unread(lines: list[str]) -> list[Finding]:
    if not lines:
        return []
    message = f"{counted(len(lines), 'line')} of the table could not be read"
    fix = "read the JSON of the run (-J run.json) instead of its text"
    return [Finding(LOG_ROWS, Verdict.WARN, message, f"the first is: {lines[0]}", fix)]


def _result(run: Run, given: str | None) -> Result:
    collective = reading.resolve(given, reading.program_collective(run.program), "nccl-tests text")
    groups, nccl = len({device.group for device in run.devices}) or 1, run.nccl or run.banner
    processes = list(dict.fromkeys((device.host, device.pid) for device in run.devices))
    for device in run.devices:
        device.process = processes.index((device.host, device.pid))
    ranks = len(run.devices) // groups
    iters = run.spec.get("iters", 0)
    lines = [rows.finish(line, collective, iters, ranks) for line in run.lines]
    sizes = [row.size_bytes for row in lines]
    spec = {"min_bytes": min(sizes), "max_bytes": max(sizes)} | reading.series(lines) | run.spec
    if run.titles:
        spec |= {"report_cputime": int("cputime" in run.titles.side), "report_timestamps": int(run.titles.timestamp)}
        spec |= {"per_iter_timing": int("i_min" in run.titles.side)}
    return Result(
        tool=f"nccl-tests {run.versions.get('nccl-tests', '')}".strip(),
        spec=SweepSpec(collective=collective.name, **spec),
        program=run.program,
        library=Library("nccl" if nccl else "", nccl, run.versions),
        world=World(run.devices, len(processes), groups),
        reduced_max_bytes=run.reduced_max_bytes,
        rows=lines,
        findings=_unread(run.unread),
        out_of_bounds=run.out_of_bounds,
        memory=run.memory,
        errors=run.errors,
        complete=run.concluded,
    )


def read(text: str, collective: str | None = None, table: int | None = None) -> Result:
    """The run of a table, from 1 on; without a number the first, with a finding where there are more.

    UsageError where there is no such table with a row, or where neither log nor caller names the collective.
    """
    runs = list(_runs(text))
    if not runs:
        raise UsageError("nccl-tests text: no row of a table in it", "give the standard output of an nccl-tests run, header lines included")
    if table and table > len(runs):
        raise UsageError(f"--table {table}: the log holds {counted(len(runs), 'table')}", f"give a number from 1 to {len(runs)}")
    result = _result(runs[(table or 1) - 1], collective)
    if len(runs) > 1 and table is None:
        message = f"the log holds {len(runs)} tables; this is the first"
        evidence = f"rows per table: {', '.join(str(len(run.lines)) for run in runs)}"
        result.findings.append(Finding(LOG_TABLES, Verdict.WARN, message, evidence, f"choose another with --table 2 to {len(runs)}"))
    return result
