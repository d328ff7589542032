"""Reads the text of nccl-tests (every release, and RCCL's) back into a Result, from any log that
holds it.

What the log does not state stays empty; figures have the precision of the print. Lines may have
labels, and NCCL's own lines may stand between and inside rows. A log with several tables holds
several runs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from busbw.core.collectives import BY_NAME, Collective
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import UsageError
from busbw.core.finding import LOG_TABLES, Finding, Verdict
from busbw.core.result import Device, Library, Result, World
from busbw.core.sizes import counted
from busbw.core.sweep import SweepSpec
from busbw.measure.formats import log_checks, log_collective, log_lines, reading
from busbw.measure.formats import nccl_tests_rows as rows
from busbw.measure.formats.nccl_tests_rows import Columns, columns, units, with_units
from busbw.ui.number_formats import nccl_version_number

START = re.compile(
    r"#\s*Writing JSON output to |(?:nccl|rccl)-tests version |Collective test starting:"
    r" |nThread:? \d"
)
COMMAND = re.compile(r"(?<![\w./-])([\w./-]*_(?:perf(?:_mpi)?\s+-\w|test\s+\d))")
SPEC_PATTERNS: tuple[tuple[str, str], ...] = (
    ("nthreads", r"nThread:?\s+(\d{1,18})"),
    ("ngpus", r"nGpus:?\s+(\d{1,18})"),
    ("min_bytes", r"minBytes:?\s+(\d{1,18})"),
    ("max_bytes", r"maxBytes:?\s+(\d{1,18})"),
    ("step_factor", r"step:?\s+(\d{1,18})\(factor\)"),
    ("step_bytes", r"step:?\s+(\d{1,18})\(bytes\)"),
    ("warmup_iters", r"warmup ?[iI]ters:?\s+(\d{1,18})"),
    ("iters", r"(?<!warmup )(?<!agg )\biters:?\s+(\d{1,18})"),
    ("agg_iters", r"agg iters:?\s+(\d{1,18})"),
    ("check", r"validation:?\s+(\d{1,18})"),
    ("cudagraph", r"graph:?\s+(\d{1,18})"),
    ("unalign", r"unalign:?\s+(\d{1,18})"),
)
MEMORY_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}

# Lines about the run, by the names of what they state; labels and `#` may stand before them.
FACTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<tool>[nr]ccl-tests) version (?P<tests>\S+)(?: \([0-9a-f]+\))?"
        r"(?: [nr]ccl-headers=(?P<headers>\d{1,18}) [nr]ccl-library=(?P<nccl>\d{1,18}))?",
        r"(?P<tool>rccl-tests): Version (?P<tests>\S+)",
        r"NCCL version (?P<banner>\d{1,4}\.\d{1,4}\.\d{1,4})",
        r"RCCL version ?:? (?P<banner>\d{1,4}\.\d{1,4}\.\d{1,4})",
        r"Collective test (?:starting|concluded): ?(?P<program>\S+)",
        r"(?P<options>nThread:? \d.*)",
        r"#\s*Reducing maxBytes to (?P<reduced_max_bytes>\d{1,18})",
        r"#\s*Blocking Enabled: (?P<blocking>.*)",
        (
            r"#\s*(?P<per_iteration>Per-Iteration Report:[^;]*;[^;]*)(?:; summary skips first"
            r" (?P<skip>\d{1,18}))?"
        ),
        r"#\s*(?P<parallel_init>Parallel Init Enabled)",
        r"#\s*Writing JSON output to (?P<output_file>.+)",
        r"Out of bounds values\s*:\s*(?P<out_of_bounds>\d{1,18})",
        (
            r"Avg bus"
            r" bandwidth\s*:\s*(?P<average>-?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan"
            r"|inf))(?:GB/s)?(?:\s+(?P<average_verdict>OK|FAILED))?"
        ),
        r"#\s*GPU memory usage\s*:(?P<memory>.*)",
    )
)
# The first releases leave out the process, NCCL 1 the host too.
DEVICE = re.compile(
    r"\bRank\s+(\d{1,18})\s+(?:Group\s+(\d{1,18})\s+)?(?:(?:Pid\s+(\d{1,18})\s+)?on\s+(\S+)"
    r"|uses)\s+device\s+(\d{1,18})"
    r" \[([^\]]*)\]\s*(.*)"
)
ERROR = re.compile(
    r"#\s*error: (.+)|(\S{1,255}: Test (?:NCCL|CUDA) failure .*|\S{1,255}: Test timeout .*)"
)
FAILURE = re.compile(r"\.\. (\S{1,255} pid \d{1,18}: Test failure \S+)")
NO_TABLE = "give the standard output of an nccl-tests run, with its lines of titles and rows"


@dataclass
class Run:
    """What was read so far from one table and the lines around it; `facts` are the groups of
    FACTS.
    """

    facts: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    titles: Columns | None = None
    lines: list[rows.Read] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    # the lines of the rows, read again when the unit of time is known
    texts: list[str] = field(default_factory=list)

    @property
    def concluded(self) -> bool:
        """Whether the line after the table was read."""
        return "average" in self.facts

    @property
    def begun(self) -> bool:
        """Whether the table has begun."""
        return bool(self.titles or self.lines)


def _take(run: Run, line: str, before: str) -> None:
    titles = columns(line)
    if titles:
        run.titles = replace(titles, in_place="in-place" in before and "out-of-place" not in before)
    elif run.titles and not run.lines and (found := units(line)):
        run.titles = with_units(run.titles, found)
    elif not run.concluded and (row := rows.parse(line, run.titles)):
        run.lines.append(row)
        run.texts.append(line)
    elif rows.starts_row(line):
        run.unread += [line.strip()] if run.titles and not run.concluded else []
    elif match := DEVICE.search(line):
        rank, group, pid, host, index, bus, name = match.groups()
        bus = "" if bus == "0000:00:00" else bus
        run.devices.append(
            Device(
                int(rank), int(pid or 0), host or "", int(index), bus, name.strip(), int(group or 0)
            )
        )
    elif match := ERROR.search(line):
        run.errors.append(match[1] or match[2])
    elif match := FAILURE.search(line):
        run.failures.append(match[1])
    else:
        _facts(run, line)


def _facts(run: Run, line: str) -> None:
    for pattern in FACTS:
        if match := pattern.search(line):
            run.facts |= {
                name: text for name, text in match.groupdict().items() if text is not None
            }
            return


def _runs(text: str) -> Iterator[Run]:
    run, command, before = Run(), "", ""
    for line in log_lines.own_lines(text):
        if run.begun and (START.search(line) or (run.lines and columns(line))):
            if run.lines or run.unread:
                yield run
            run = Run()
        used = COMMAND.search(line)
        command = (
            used[1].split()[0]
            if used and reading.program_collective(used[1].split()[0])
            else command
        )
        if not run.begun and command:
            run.facts.setdefault("program", command.rsplit("/", 1)[-1])
        _take(run, line, before)
        before = line
    if run.lines or run.unread or "average" in run.facts:
        yield run


def _spec(run: Run) -> dict[str, Any]:
    """Fields of SweepSpec that lines other than rows state.

    Without a header, iterations are 0, which is unknown.
    """
    facts = run.facts
    found = (
        (name, re.search(pattern, facts.get("options", ""))) for name, pattern in SPEC_PATTERNS
    )
    spec: dict[str, Any] = {name: int(value[1]) for name, value in found if value}
    spec = {"iters": 0, "warmup_iters": 0} | spec if "options" not in facts else spec
    if blocking := facts.get("blocking"):
        spec["blocking"] = (
            3 if "outer iteration" in blocking else 2 if "no barrier" in blocking else 1
        )
    spec |= (
        {"per_iter_timing": 1, "per_iter_skip": int(facts.get("skip", 0))}
        if "per_iteration" in facts
        else {}
    )
    spec |= {name: 1 for name in ("memory", "parallel_init") if name in facts}
    spec |= {"output_file": facts["output_file"]} if "output_file" in facts else {}
    if run.titles:
        spec |= {
            "report_cputime": int("cputime" in run.titles.side),
            "report_timestamps": int("timestamp" in run.titles.trailing),
        }
        spec |= {"per_iter_timing": int("i_min" in run.titles.side)}
    return spec


def _steps(sizes: list[int]) -> dict[str, int]:
    """The factor or step between sizes; a step of 0 where they have none in common."""
    grown = [(small, large) for small, large in pairwise(sizes) if large > small > 0]
    if grown and all(
        large % small == 0 and large // small == grown[0][1] // grown[0][0]
        for small, large in grown
    ):
        return {"step_factor": grown[0][1] // grown[0][0]}
    steps = {large - small for small, large in grown}
    return {"step_bytes": steps.pop() if len(steps) == 1 else 0}


def _in_seconds(run: Run) -> None:
    """Read the rows again where no line states the unit of time, and size / algbw does."""
    off = log_checks.thousands([one.row for one in run.lines])
    if run.titles and run.titles.per_second is None and off:
        titles = replace(run.titles, per_second=1e6 / 1000.0**off)
        run.lines = [row for text in run.texts if (row := rows.parse(text, titles))]


def _collective(run: Run, given: str | None, ranks: int) -> tuple[Collective, int, list[Finding]]:
    """The collective that the log or the caller names, or the only one that fits; and the ranks,
    0 where the table denies them.
    """
    seen = log_collective.evidence(run.lines, run.titles, ranks)
    found = reading.program_collective(run.facts.get("program", ""))
    if found:
        row = reading.resolve(given, found, "nccl-tests text")
        return row, ranks, log_checks.named(row, seen, inferred=False)
    if given is not None:
        row = collective_row(given)
        if why := log_collective.contradiction(row, seen):
            raise UsageError(
                f"nccl-tests text: --collective {row.name} contradicts the table: {why}",
                _others(seen),
            )
        return row, ranks, log_checks.named(row, seen, inferred=False)
    left = log_collective.candidates(seen)
    without = replace(seen, ranks=0)
    if ranks and not left and len(others := log_collective.candidates(without)) == 1:
        row = BY_NAME[others[0]]
        return (
            row,
            0,
            [
                *log_checks.named(row, without, inferred=True),
                log_checks.other_ranks(ranks, row, without),
            ],
        )
    if len(left) != 1:
        raise UsageError(
            f"nccl-tests text: it does not name the collective, and {_doubt(left, seen)}",
            _others(seen),
        )
    return BY_NAME[left[0]], ranks, log_checks.named(BY_NAME[left[0]], seen, inferred=True)


def _doubt(left: list[str], seen: log_collective.Evidence) -> str:
    if left:
        return f"its table can be of {' or '.join(left)}"
    if seen.ratio == log_collective.NO_RATIO:
        return "busbw / algbw differs between its rows"
    return (
        f"no collective has its busbw / algbw of {log_collective.ratio_text(seen)} with these"
        " operators and roots"
    )


def _others(seen: log_collective.Evidence) -> str:
    """The hint for a log without the name of its collective."""
    names = log_collective.candidates(seen) or list(BY_NAME)
    return f"pass --collective {names[0]}" + (
        f", or one of {', '.join(names[1:])}" if names[1:] else ""
    )


def _library(facts: dict[str, str]) -> Library:
    tool, tests = facts.get("tool", "nccl-tests"), facts.get("tests", "")
    nccl = int(facts.get("nccl", 0)) or nccl_version_number(facts.get("banner", "0.0.0"))
    versions = {tool: tests} if tests else {}
    if facts.get("headers", facts.get("nccl")) != facts.get("nccl"):
        versions["nccl-headers"] = facts["headers"]
    return Library("nccl" if nccl else "", nccl, versions)


def _world(devices: list[Device]) -> World:
    processes = list(dict.fromkeys((device.host, device.pid) for device in devices))
    for device in devices:
        device.process = processes.index((device.host, device.pid))
    return World(devices, len(processes), len({device.group for device in devices}) or 1)


def _result(run: Run, given: str | None) -> Result:
    facts, spec = run.facts, _spec(run)
    _in_seconds(run)
    amounts = re.findall(r"(\d{1,18}(?:\.\d{1,9})?) (B|KB|MB|GB)\b", facts.get("memory", ""))
    memory = [round(float(value) * MEMORY_UNITS[unit]) for value, unit in amounts]
    devices, of_devices = log_checks.known_devices(
        run.devices, spec.get("nthreads", 0) * spec.get("ngpus", 0)
    )
    groups = len({device.group for device in devices}) or 1
    collective, ranks, of_name = _collective(run, given, len(devices) // groups)
    devices = devices if ranks else []
    lines = [rows.finish(one.row, collective, spec.get("iters", 0), ranks) for one in run.lines]
    missing = log_checks.average(lines, facts.get("average", ""))
    findings = [
        *log_checks.unread(run.unread),
        *of_name,
        *missing,
        *of_devices,
        *log_checks.time_unit(lines),
    ]
    findings += log_checks.failed(facts.get("average_verdict") == "FAILED", run.failures)
    sizes = [row.size_bytes for row in lines]
    spec = (
        {"min_bytes": min(sizes), "max_bytes": max(sizes)}
        | _steps(sizes)
        | reading.series(lines)
        | spec
    )
    return Result(
        tool=f"{facts.get('tool', 'nccl-tests')} {facts.get('tests', '')}".strip(),
        spec=SweepSpec(collective=collective.name, **spec),
        program=facts.get("program", ""),
        library=_library(facts),
        world=_world(devices),
        reduced_max_bytes=int(facts["reduced_max_bytes"]) if "reduced_max_bytes" in facts else None,
        rows=lines,
        findings=findings,
        out_of_bounds=int(facts.get("out_of_bounds", 0)),
        memory=dict(zip(("init", "user", "collective", "total"), memory, strict=False)),
        errors=run.errors,
        complete=run.concluded and not missing,
    )


def _no_table(runs: list[Run]) -> UsageError:
    unread = next((run.unread for run in runs if run.unread), [])
    if unread:
        lines = (
            f"{counted(len(unread), 'line')} of its table cannot be read, the first is:"
            f" {unread[0][:100]}"
        )
        return UsageError(f"nccl-tests text: {lines}", "give the log as nccl-tests printed it")
    if runs:
        return UsageError(
            f"nccl-tests text: it states an average of {runs[0].facts['average']} GB/s, and no row"
            " of a table",
            NO_TABLE,
        )
    return UsageError("nccl-tests text: no row of a table in it", NO_TABLE)


def read(text: str, collective: str | None = None, table: int | None = None) -> Result:
    """The run of a table, from 1 on; without a number the first, with a finding where there are
    more.

    UsageError where there is no such table with a row, or where log, table and caller do not say
    which collective it is.
    """
    found = list(_runs(text))
    runs = [run for run in found if run.lines]
    if not runs:
        raise _no_table(found)
    if table and table > len(runs):
        raise UsageError(
            f"--table {table}: the log holds {counted(len(runs), 'table')}",
            f"give a number from 1 to {len(runs)}",
        )
    result = _result(runs[(table or 1) - 1], collective)
    if len(runs) > 1 and table is None:
        message = f"the log holds {len(runs)} tables; this is the first"
        evidence = f"rows per table: {', '.join(str(len(run.lines)) for run in runs)}"
        result.findings.append(
            Finding(
                LOG_TABLES,
                Verdict.WARN,
                message,
                evidence,
                f"choose another with --table 2 to {len(runs)}",
            )
        )
    return result
