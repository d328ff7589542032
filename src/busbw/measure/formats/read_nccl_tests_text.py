"""Reads the text of nccl-tests (every release, and RCCL's) back into a Result.

The text may be anywhere in a log. What the log does not state stays empty; figures have the
precision of the print. Lines may have labels, and NCCL's own lines may stand between and inside
rows. A log with several tables holds several runs.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from busbw.core.collectives import BY_NAME, Collective
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import UsageError
from busbw.core.finding import LOG_TABLES, RunFinding, Verdict
from busbw.core.result import EngineLibrary, RankDevice, Result, World
from busbw.core.sizes import counted
from busbw.core.sweep import SweepSpec
from busbw.measure.formats import log_checks, log_collective, nccl_lines, reading
from busbw.measure.formats.read_nccl_tests_log import LoggedTable, runs
from busbw.measure.formats.read_nccl_tests_rows import finish, parse
from busbw.ui.number_formats import nccl_version_number

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

NO_TABLE = "give the standard output of an nccl-tests run, with its lines of titles and rows"


def _spec(run: LoggedTable) -> dict[str, Any]:
    """Fields of SweepSpec that lines other than rows state.

    Without a header, iterations are 0, which means that they are unknown.
    """
    facts = run.facts
    spec: dict[str, Any] = {}
    if "options" not in facts:
        spec |= {"iters": 0, "warmup_iters": 0}
    options = " ".join(facts.get("options", "").split())
    for name, pattern in SPEC_PATTERNS:
        match = re.search(pattern, options)
        if match:
            spec[name] = int(match[1])
    if facts.get("blocking"):
        spec["blocking"] = _blocking(facts["blocking"])
    if "per_iteration" in facts:
        spec |= {"per_iter_timing": 1, "per_iter_skip": int(facts.get("skip", 0))}
    spec |= {name: 1 for name in ("memory", "parallel_init") if name in facts}
    if "output_file" in facts:
        spec["output_file"] = facts["output_file"]
    if run.titles:
        spec["report_cputime"] = int("cputime" in run.titles.side)
        spec["report_timestamps"] = int("timestamp" in run.titles.trailing)
        spec["per_iter_timing"] = int("i_min" in run.titles.side)
    return spec


def _blocking(text: str) -> int:
    """The value of -z that a line of the log describes."""
    if "outer iteration" in text:
        return 3
    return 2 if "no barrier" in text else 1


def _steps(sizes: list[int]) -> dict[str, int]:
    """The factor or step between sizes; a step of 0 where they have none in common."""
    growing = [(small, large) for small, large in pairwise(sizes) if large > small > 0]
    factors = {large // small for small, large in growing}
    if len(factors) == 1 and not any(large % small for small, large in growing):
        return {"step_factor": factors.pop()}
    steps = {large - small for small, large in growing}
    return {"step_bytes": steps.pop() if len(steps) == 1 else 0}


def _in_seconds(run: LoggedTable) -> None:
    """Read the rows again where no line states the unit of time, and size / algbw does."""
    power = log_checks.thousands([table_row.row for table_row in run.rows])
    if run.titles and run.titles.per_second is None and power:
        titles = replace(run.titles, per_second=1e6 / 1000.0**power)
        parsed = [parse(text, titles) for text in run.texts]
        run.rows = [row for row in parsed if row]


def _collective(
    run: LoggedTable, option: str | None, ranks: int
) -> tuple[Collective, int, list[RunFinding]]:
    """The collective that the log or --collective names, or else the only one that fits the table.

    Also returns the ranks, 0 if the table contradicts them, and the findings.
    """
    evidence = log_collective.evidence_of(run.rows, run.titles, ranks)
    in_log = reading.program_collective(run.facts.get("program", ""))
    if in_log:
        row = reading.resolve(option, in_log, "nccl-tests text")
        return row, ranks, log_checks.of_collective(row, evidence, inferred=False)
    if option is not None:
        row = collective_row(option)
        why = log_collective.contradiction(row, evidence)
        if why:
            message = f"nccl-tests text: --collective {row.name} contradicts the table: {why}"
            raise UsageError(message, _collective_hint(evidence))
        return row, ranks, log_checks.of_collective(row, evidence, inferred=False)
    names = log_collective.candidates(evidence)
    if ranks and not names:
        of_any_ranks = replace(evidence, ranks=0)
        other_names = log_collective.candidates(of_any_ranks)
        if len(other_names) == 1:
            row = BY_NAME[other_names[0]]
            findings = log_checks.of_collective(row, of_any_ranks, inferred=True)
            return row, 0, [*findings, log_checks.other_ranks(ranks, row, of_any_ranks)]
    if len(names) != 1:
        message = f"it does not name the collective, and {_doubt(names, evidence)}"
        raise UsageError(f"nccl-tests text: {message}", _collective_hint(evidence))
    row = BY_NAME[names[0]]
    return row, ranks, log_checks.of_collective(row, evidence, inferred=True)


def _doubt(names: list[str], evidence: log_collective.TableEvidence) -> str:
    """Why the table does not decide the collective; `names` are those that it can be of."""
    if names:
        return f"its table can be of {' or '.join(names)}"
    if evidence.ratio == log_collective.NO_RATIO:
        return "busbw / algbw differs between its rows"
    return (
        f"no collective has its busbw / algbw of {log_collective.ratio_text(evidence)} with these"
        " operators and roots"
    )


def _collective_hint(evidence: log_collective.TableEvidence) -> str:
    """The hint for a log without the name of its collective."""
    names = log_collective.candidates(evidence) or list(BY_NAME)
    others = f", or one of {', '.join(names[1:])}" if names[1:] else ""
    return f"pass --collective {names[0]}{others}"


def _complete(run: LoggedTable, stated: Mapping[str, Any]) -> bool:
    """Whether the sweep ended, as far as the log says.

    People leave out lines around a table, so that without its end only a larger size in the
    header, or an error, says that it did not.
    """
    if run.concluded:
        return True
    if run.cut or run.errors or run.failures:
        return False
    if "max_bytes" not in stated:
        return True
    largest = int(run.facts.get("reduced_max_bytes", stated["max_bytes"]))
    last = max(table_row.row.size_bytes for table_row in run.rows)
    step = stated.get("step_bytes", last * (stated.get("step_factor", 2) - 1))
    return bool(last + step > largest)


def _library(facts: dict[str, str]) -> EngineLibrary:
    tool, tests = facts.get("tool", "nccl-tests"), facts.get("tests", "")
    nccl = int(facts.get("nccl", 0)) or nccl_version_number(facts.get("banner", "0.0.0"))
    versions = {tool: tests} if tests else {}
    if "commit" in facts:
        versions[f"{tool}-commit"] = facts["commit"]
    if facts.get("headers", facts.get("nccl")) != facts.get("nccl"):
        versions["nccl-headers"] = facts["headers"]
    return EngineLibrary("nccl" if nccl else "", nccl, versions)


def _world(devices: list[RankDevice]) -> World:
    processes = list(dict.fromkeys((device.host, device.pid) for device in devices))
    for device in devices:
        device.process = processes.index((device.host, device.pid))
    return World(devices, len(processes), len({device.group for device in devices}) or 1)


def _result(run: LoggedTable, option: str | None) -> Result:
    facts, stated = run.facts, _spec(run)
    _in_seconds(run)
    amounts = re.findall(r"(\d{1,18}(?:\.\d{1,9})?) (B|KB|MB|GB)\b", facts.get("memory", ""))
    memory = [round(float(value) * MEMORY_UNITS[unit]) for value, unit in amounts]
    per_process = stated.get("nthreads", 0) * stated.get("ngpus", 0)
    devices, of_devices = log_checks.known_devices(run.devices, per_process)
    groups = len({device.group for device in devices}) or 1
    collective, ranks, of_name = _collective(run, option, len(devices) // groups)
    devices = devices if ranks else []
    iters = stated.get("iters", 0)
    rows = [finish(table_row, collective, iters, ranks) for table_row in run.rows]
    missing = log_checks.average(rows, facts.get("average", ""))
    findings = [
        *log_checks.unread_rows(run.unread),
        *of_name,
        *missing,
        *of_devices,
        *log_checks.time_unit(rows),
        *log_checks.wrong_data(run.rows, collective),
        *log_checks.failed(facts.get("average_verdict") == "FAILED", run.errors + run.failures),
    ]
    sizes = [row.size_bytes for row in rows]
    from_rows = {"min_bytes": min(sizes), "max_bytes": max(sizes)} | _steps(sizes)
    spec = from_rows | reading.series(rows) | stated
    return Result(
        tool=f"{facts.get('tool', 'nccl-tests')} {facts.get('tests', '')}".strip(),
        spec=SweepSpec(collective=collective.name, **spec),
        program=facts.get("program", ""),
        library=_library(facts),
        world=_world(devices),
        reduced_max_bytes=int(facts["reduced_max_bytes"]) if "reduced_max_bytes" in facts else None,
        rows=rows,
        findings=findings,
        out_of_bounds=int(facts.get("out_of_bounds", 0)),
        memory=dict(zip(("init", "user", "collective", "total"), memory, strict=False)),
        errors=run.errors,
        complete=_complete(run, stated),
    )


def _is_bad(run: LoggedTable) -> bool:
    """Whether the lines of a run state wrong data or a failure."""
    wrong = any(
        cell is not None and cell.wrong
        for table_row in run.rows
        for cell in (table_row.row.out_of_place, table_row.row.in_place)
    )
    stated = int(run.facts.get("out_of_bounds", 0)) or run.facts.get("average_verdict") == "FAILED"
    return bool(wrong or stated or run.errors or run.failures)


def _no_table(found: list[LoggedTable]) -> UsageError:
    unread = next((run.unread for run in found if run.unread), [])
    if unread:
        return UsageError(
            f"nccl-tests text: {counted(len(unread), 'line')} of its table cannot be read, the"
            f" first is: {unread[0][:100]}",
            "give the log as nccl-tests printed it",
        )
    errors = [error for run in found for error in run.errors + run.failures]
    if errors:
        return UsageError(
            f"nccl-tests text: no row of a table in it, and a failure: {errors[0]}",
            "NCCL_DEBUG=WARN in a new run: NCCL then says why",
        )
    averages = [run.facts["average"] for run in found if "average" in run.facts]
    if averages:
        return UsageError(
            f"nccl-tests text: it states an average of {averages[0]} GB/s, and no row of a table",
            NO_TABLE,
        )
    return UsageError("nccl-tests text: no row of a table in it", NO_TABLE)


def read(text: str, collective: str | None = None, table: int | None = None) -> Result:
    """The run of the table with this number, from 1 on.

    Without a number it is the first, with a finding if there are more. UsageError if there is no
    such table with a row, or if log, table and caller do not say which collective it is.
    """
    all_runs = list(runs(text))
    tables = [run for run in all_runs if run.rows]
    if not tables:
        raise _no_table(all_runs)
    if table and table > len(tables):
        raise UsageError(
            f"--table {table}: the log holds {counted(len(tables), 'table')}",
            f"give a number from 1 to {len(tables)}",
        )
    result = _result(tables[(table or 1) - 1], collective)
    if table is None:
        result.findings += log_checks.without_rows(run for run in all_runs if run.broken)
    if len(tables) > 1 and table is None:
        message = f"the log holds {len(tables)} tables; this is the first"
        evidence = f"rows per table: {', '.join(str(len(run.rows)) for run in tables)}"
        fix = "choose another with --table 2" + (f" to {len(tables)}" if len(tables) > 2 else "")
        result.findings.append(RunFinding(LOG_TABLES, Verdict.WARN, message, evidence, fix))
        bad = [number for number, run in enumerate(tables, 1) if number > 1 and _is_bad(run)]
        result.findings += log_checks.other_tables(bad)
    if len(tables) == 1:  # of several, NCCL's lines do not say which run they are of
        nccl_lines.add(result, text)
    return result
