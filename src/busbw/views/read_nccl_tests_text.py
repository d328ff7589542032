"""Reads the text of nccl-tests (every release, and RCCL's) back into a Result, from any log that holds it.

What the log does not state stays empty; figures have the precision of the print. NCCL's own lines may stand between and inside rows.
A log with several tables holds several runs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from busbw.core.errors import UsageError
from busbw.core.finding import LOG_ROWS, LOG_TABLES, Finding, Verdict
from busbw.core.result import Device, Library, Result, Row, World
from busbw.core.sizes import counted
from busbw.core.sweep import SweepSpec
from busbw.views import nccl_tests_rows as rows
from busbw.views import reading
from busbw.views.formats import nccl_version_number

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

# Lines about the run, by the names of what they state.
FACTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"#\s*nccl-tests version (?P<tests>\S+) nccl-headers=(?P<headers>\d+) nccl-library=(?P<nccl>\d+)",
        r"NCCL version (?P<banner>\d+\.\d+\.\d+)",
        r"#\s*Collective test starting:\s*(?P<program>\S+)",
        r"#\s*(?P<options>nThread:? \d.*)",
        r"#\s*Reducing maxBytes to (?P<reduced_max_bytes>\d+)",
        r"#\s*Blocking Enabled: (?P<blocking>.*)",
        r"#\s*(?P<per_iteration>Per-Iteration Report:[^;]*;[^;]*)(?:; summary skips first (?P<skip>\d+))?",
        r"#\s*(?P<parallel_init>Parallel Init Enabled)",
        r"#\s*Writing JSON output to (?P<output_file>.+)",
        r"#\s*Out of bounds values\s*:\s*(?P<out_of_bounds>\d+)",
        r"#\s*(?P<average>Avg bus bandwidth\s*:)",
        r"#\s*GPU memory usage\s*:(?P<memory>.*)",
    )
)
DEVICE = re.compile(r"#\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+) on\s+(\S+) device\s+(\d+) \[([^\]]*)\]\s*(.*)")
ERROR = re.compile(r"#\s*error: (.+)|(\S+: Test (?:NCCL|CUDA) failure .*|\S+: Test timeout .*)")


@dataclass
class Run:
    """What was read so far from one table and the lines around it; `facts` are the groups of FACTS."""

    facts: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    titles: rows.Columns | None = None
    lines: list[Row] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def concluded(self) -> bool:
        """Whether the line after the table was read."""
        return "average" in self.facts


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
    elif match := DEVICE.match(line.strip()):
        rank, group, pid, host, index, bus, name = match.groups()
        bus = "" if bus == "0000:00:00" else bus
        run.devices.append(Device(int(rank), int(pid), host, int(index), bus, name.strip(), int(group or 0)))
    elif match := ERROR.match(line.strip()):
        run.errors.append(match[1] or match[2])
    else:
        match = next(filter(None, (pattern.match(line.strip()) for pattern in FACTS)), None)
        run.facts |= {name: text for name, text in match.groupdict().items() if text is not None} if match else {}


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
        if not in_table and command:
            run.facts.setdefault("program", command.rsplit("/", 1)[-1])
        _take(run, line)
    if run.lines:
        yield run


def _unread(lines: list[str]) -> list[Finding]:
    if not lines:
        return []
    message = f"{counted(len(lines), 'line')} of the table could not be read"
    fix = "read the JSON of the run (-J run.json) instead of its text"
    return [Finding(LOG_ROWS, Verdict.WARN, message, f"the first is: {lines[0]}", fix)]


def _spec(run: Run) -> dict[str, Any]:
    """Fields of SweepSpec that lines other than rows state."""
    facts = run.facts
    found = ((name, re.search(pattern, facts.get("options", ""))) for name, pattern in SPEC_PATTERNS)
    spec: dict[str, Any] = {name: int(value[1]) for name, value in found if value}
    if blocking := facts.get("blocking"):
        spec["blocking"] = 3 if "outer iteration" in blocking else 2 if "no barrier" in blocking else 1
    spec |= {"per_iter_timing": 1, "per_iter_skip": int(facts.get("skip", 0))} if "per_iteration" in facts else {}
    spec |= {name: 1 for name in ("memory", "parallel_init") if name in facts}
    spec |= {"output_file": facts["output_file"]} if "output_file" in facts else {}
    if run.titles:
        spec |= {"report_cputime": int("cputime" in run.titles.side), "report_timestamps": int(run.titles.timestamp)}
        spec |= {"per_iter_timing": int("i_min" in run.titles.side)}
    return spec


def _result(run: Run, given: str | None) -> Result:
    facts = run.facts
    program, tests = facts.get("program", ""), facts.get("tests", "")
    collective = reading.resolve(given, reading.program_collective(program), "nccl-tests text")
    nccl = int(facts.get("nccl", 0)) or nccl_version_number(facts.get("banner", "0.0.0"))
    versions = {"nccl-tests": tests} | ({"nccl-headers": facts["headers"]} if facts["headers"] != facts["nccl"] else {}) if tests else {}
    amounts = re.findall(r"([\d.]+) (B|KB|MB|GB)\b", facts.get("memory", ""))
    memory = [round(float(value) * MEMORY_UNITS[unit]) for value, unit in amounts]
    groups = len({device.group for device in run.devices}) or 1
    processes = list(dict.fromkeys((device.host, device.pid) for device in run.devices))
    for device in run.devices:
        device.process = processes.index((device.host, device.pid))
    spec = _spec(run)
    lines = [rows.finish(line, collective, spec.get("iters", 0), len(run.devices) // groups) for line in run.lines]
    sizes = [row.size_bytes for row in lines]
    spec = {"min_bytes": min(sizes), "max_bytes": max(sizes)} | reading.series(lines) | spec
    return Result(
        tool=f"nccl-tests {tests}".strip(),
        spec=SweepSpec(collective=collective.name, **spec),
        program=program,
        library=Library("nccl" if nccl else "", nccl, versions),
        world=World(run.devices, len(processes), groups),
        reduced_max_bytes=int(facts["reduced_max_bytes"]) if "reduced_max_bytes" in facts else None,
        rows=lines,
        findings=_unread(run.unread),
        out_of_bounds=int(facts.get("out_of_bounds", 0)),
        memory=dict(zip(("init", "user", "collective", "total"), memory, strict=False)),
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
