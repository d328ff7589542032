"""Takes a log of nccl-tests apart: the runs in it, each with the lines of its table and around it.

Lines may have labels, and NCCL's own lines may stand between and inside rows. `runs` returns what
the lines state; read_nccl_tests_text makes a Result of it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from busbw.core.result import RankDevice
from busbw.measure.formats import log_lines, reading
from busbw.measure.formats.read_nccl_tests_rows import (
    Columns,
    Read,
    columns,
    parse,
    starts_row,
    units,
    with_units,
)

START = re.compile(
    r"#\s*Writing JSON output to |(?:nccl|rccl)-tests version |Collective test starting:"
    r" |nThread:? \d"
)
COMMAND = re.compile(r"(?<![\w./-])([\w./-]*_(?:perf(?:_mpi)?\s+-\w|test\s+\d))")
# AWS Neuron's nccom-test names its collective so: `nccom-test -r 32 -b 1KB -e 1GB allg`.
NCCOM = re.compile(
    r"\bnccom-test\b[^;&|]{0,500}?\s(all[rg]|redsct|alltoall|sendrecv|bcast)(?=\s|$)"
)
# Lines about the run, by the names of what they state; labels and `#` may stand before them.
FACTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<tool>[nr]ccl-tests) version (?P<tests>\S+)(?: \((?P<commit>[^()\s]{1,64})\))?"
        r"(?: [nr]ccl-headers=(?P<headers>\d{1,18}) [nr]ccl-library=(?P<nccl>\d{1,18}))?",
        r"(?P<tool>rccl-tests): Version (?P<tests>\S+)",
        r"NCCL version (?P<banner>\d{1,4}\.\d{1,4}\.\d{1,4})",
        r"RCCL version ?:? (?P<banner>\d{1,4}\.\d{1,4}\.\d{1,4})",
        r"Collective test (?:starting|(?P<concluded>concluded)): ?(?P<program>\S+)",
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
# The first releases leave out the process, NCCL 1 the host too, which people also remove.
DEVICE = re.compile(
    r"\bRank\s+(\d{1,18})\s+(?:Group\s+(\d{1,18})\s+)?"
    r"(?:(?:Pid\s+(\d{1,18})\s+)?on\s+(?:(\S+)\s+)?|uses\s+)device\s+(\d{1,18})"
    r"\s+\[([^\]]*)\]\s*(.*)"
)
ERROR = re.compile(
    r"#\s*error: (.+)|(\S{1,255}: Test (?:NCCL|CUDA) failure .*|\S{1,255}: Test timeout .*)"
)
PLACE = re.compile(r"\b(?:out-of|in)-place\b")
# The names of FACTS behind the table.
CONCLUSIONS = ("average", "out_of_bounds", "concluded")
FAILURE = re.compile(r"\.\. (\S{1,255} pid \d{1,18}: Test failure \S+)")


@dataclass
class LoggedTable:
    """What was read so far from one table and the lines around it."""

    facts: dict[str, str] = field(default_factory=dict)  # the groups of FACTS
    devices: list[RankDevice] = field(default_factory=list)
    titles: Columns | None = None
    rows: list[Read] = field(default_factory=list)
    # the lines of `rows`, read again when the unit of time is known
    texts: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    cut: bool = False  # the last line of the table was no whole row
    errors: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        """Whether it failed or stood still before its first row, or its rows are missing."""
        return not self.rows and bool(self._begun or self.devices)

    @property
    def _begun(self) -> bool:
        return bool(self.rows or self.titles or self.errors or self.failures)

    @property
    def concluded(self) -> bool:
        """Whether a line was read that follows the table."""
        return any(name in self.facts for name in CONCLUSIONS)

    def is_of_next_run(self, line: str) -> bool:
        """Whether the line is a row after the average: of a further run without its titles."""
        return bool(self.rows) and starts_row(line) and parse(line, self.titles) is not None

    def ends_before(self, line: str) -> bool:
        """Whether the line is of another run."""
        if self.concluded:
            begins = START.search(line) or columns(line) or DEVICE.search(line)
            return bool(begins or self.is_of_next_run(line))
        return (self._begun and START.search(line) is not None) or (
            bool(self.rows) and columns(line) is not None
        )


def _take(run: LoggedTable, line: str, before: str) -> None:
    """Add what a line states; `before` are the two lines before it, the first of which names a
    place too if a mail client wrapped them.
    """
    titles = columns(line)
    if titles:
        places = ["in-place", "out-of-place"][: titles.sides]
        run.titles = replace(titles, in_place=PLACE.findall(before) == places)
        return
    of_titles = units(line) if run.titles and not run.rows else []
    if run.titles and of_titles:
        run.titles = with_units(run.titles, of_titles)
        return
    row = None if run.concluded else parse(line, run.titles)
    if row:
        run.rows.append(row)
        run.texts.append(line)
        run.cut = False
    elif not starts_row(line):
        _take_other(run, line)
    elif run.titles and not run.concluded:
        run.unread.append(line.strip())
        run.cut = True


def _take_other(run: LoggedTable, line: str) -> None:
    """Add what a line that is not of the table states."""
    device, error, failure = DEVICE.search(line), ERROR.search(line), FAILURE.search(line)
    if device:
        run.devices.append(_device(*device.groups()))
    elif error:
        run.errors.append(error[1] or error[2])
    elif failure:
        run.failures.append(failure[1])
    else:
        _take_facts(run, line)


def _device(
    rank: str, group: str | None, pid: str | None, host: str | None, index: str, bus: str, name: str
) -> RankDevice:
    bus = "" if bus == "0000:00:00" else bus
    name = " ".join(name.split())
    return RankDevice(int(rank), int(pid or 0), host or "", int(index), bus, name, int(group or 0))


def _take_facts(run: LoggedTable, line: str) -> None:
    for pattern in FACTS:
        match = pattern.search(line)
        if match:
            groups = match.groupdict()
            run.facts |= {name: text for name, text in groups.items() if text is not None}
            return


def runs(text: str) -> Iterator[LoggedTable]:
    """The runs of a log, in their order, also without a row if they failed; the last may have an
    average alone.
    """
    run, command, before = LoggedTable(), "", ("", "")
    for line in log_lines.own_lines(text):
        if run.ends_before(line):
            if run.rows or run.unread or run.broken:
                yield run
            run = LoggedTable(titles=run.titles if run.is_of_next_run(line) else None)
        nccom = NCCOM.search(line) if "nccom-test" in line else None
        if nccom:
            command = f"{reading.collective_of(nccom[1])}_test"
        match = COMMAND.search(line)
        program = match[1].split()[0] if match else ""
        if reading.program_collective(program):
            command = program
        if run.titles is None and not run.rows and command:
            run.facts.setdefault("program", command.rsplit("/", 1)[-1])
        _take(run, line, "\n".join(before))
        before = (before[1], line)
    if run.rows or run.unread or run.broken or "average" in run.facts:
        yield run
