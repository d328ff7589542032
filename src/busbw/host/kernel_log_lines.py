"""The lines of a kernel log as programs write them: dmesg with any option, journalctl -k with any
output, syslog, and what Kubernetes and pdsh put before them.
"""

import json
import re
from datetime import datetime
from typing import NamedTuple

DAY_S, YEAR_DAYS = 86400.0, 366  # syslog names no year: each has a February 29
HALF_YEAR_S = YEAR_DAYS / 2 * DAY_S
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_COLOR = re.compile(r"\x1b\[[\d;]*[mK]|^\x1e")  # journalctl -o json-seq begins lines with 0x1e
_CONTAINER = (  # what kubectl logs and containerd keep before a line
    r"(?:\[pod/\S+\] )?"
    r"(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:(?:stdout|stderr) [FP] )?)?"
)
# Quotes and indents, a container, the name of a host or file.
_BEFORE = re.compile(rf"[>|\s]*{_CONTAINER}(?:([\w.-]{{1,64}}):\s+|[\w./-]{{1,250}}:)?")
# A line without a time goes on with the message before it if it is indented or NVIDIA's. Lines like
# " SUBSYSTEM=pci" are fields below a record of /dev/kmsg.
_CONTINUED = re.compile(
    rf"(?! [A-Z_]+=)(?:[>|]\s?)*{_CONTAINER}(?:[\w./-]{{1,250}}:(?=\s\s|\s*NVRM: ))?"
    r"(?:\s+|(?=NVRM: ))(\S.*)"
)
_LEVEL = r"(?:(?:\d{1,5} )?<\d{1,3}>(?:\d )?|1 (?=\d{4}-)|[a-z]+ *:[a-z]+ *: )?"
_CALLER = r"(?: *<[ +\d.]*>)?\](?: ?\[ *[TC]\d+\])? ?"
_OTHERS = r"(?! ?\[(?:error|warn|notice|info|client|DEBUG|INFO|WARN|ERROR)\b)"  # of other programs
_UPTIME = re.compile(rf"{_LEVEL}\[ *(\d{{1,9}}\.\d{{6,9}}){_CALLER}{_OTHERS}(.*)", re.ASCII)
_SINCE_LINE_BEFORE = re.compile(
    rf"{_LEVEL}\[(?: *\+|< *)(\d{{1,6}}\.\d{{3,9}})>?{_CALLER}(.*)", re.ASCII
)
_RECORD = re.compile(r"\d{1,3},\d{1,12},(\d{1,18}),[^;]*;(.*)", re.ASCII)
_MONTH = "(" + "|".join(_MONTHS) + ")"
_CTIME = re.compile(
    rf"{_LEVEL}\[(?:\w{{3}} )?{_MONTH} ?(\d| \d|\d\d) (\d\d):(\d\d)"
    rf"(?::(\d\d) (\d{{4}}))?{_CALLER}{_OTHERS}(.*)",
    re.ASCII,
)
_SYSLOG = re.compile(
    rf"{_LEVEL}(?:\w{{3}} )?{_MONTH} ( \d|\d\d|\d) (?:\d{{4}} )?(\d\d):(\d\d):(\d\d)(?:[.,]\d+)?"
    r"(?: \d{4}(?= kern))? +(.*)",
    re.ASCII,
)
_ISO = re.compile(
    rf"{_LEVEL}(?:\w{{3}} )?(\d{{4}}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:([.,])(\d{{1,9}}))?"
    r" ?(Z|[+-]\d\d(?::?\d\d)?(?!\d)|(?!INFO|WARN|ERROR|DEBUG)[A-Z]{2,5}(?= ))? (.*)",
    re.ASCII,
)
_TALOS = re.compile(r"([a-z]+): +[a-z]+: \[([\d:.TZ-]+)\]: (.*)", re.ASCII)  # talosctl dmesg
_UNIX = re.compile(r"(\d{10}\.\d{1,9}) (.*)", re.ASCII)
# "gpu7 kernel: text", "gpu7 kern.err kernel: text", "gpu7 INFO kernel: text", "kernel: text",
# "gpu7 kernel - - - text", "gpu7 sshd[7]: text"
_PRIORITY = r"(?:(?:kern\.\w+|EMERG|ALERT|CRIT|ERR|WARNING|NOTICE|INFO|DEBUG) )?"
_OF_PROGRAM = re.compile(
    rf"(?:kern\.\w+ )?(?:(?!kernel: )([\w.:-]{{1,255}}) {_PRIORITY})?"
    r"(?:kernel(?:(?:\[0\])?:(?: |(?=\[))| \S+ \S+ (?:-|\[.*?\](?= )) )(.*)"
    r"|(?<=\s)[\w./()@#-]{1,64}(?:\[\d+\])?: )",
    re.ASCII,
)


class ParsedLogLine(NamedTuple):
    """One line: its time in seconds of some clock, of the calendar or not.

    `text` is None if another program than the kernel wrote it. `host` is empty if it names none.
    """

    at_s: float
    is_calendar: bool
    host: str
    text: str | None


class KernelLogReader:
    """Reads the lines of one log, in their order."""

    def __init__(self) -> None:
        self._year, self._latest_s, self._before_s = 0, 0.0, 0.0

    def read(self, line: str) -> ParsedLogLine | None:
        """The line; None if no known form of a log has such a line."""
        plain = _COLOR.sub("", line)
        row = self._read(plain)
        if row is None:
            before = _BEFORE.match(plain)
            if before and before.end():
                row = self._read(plain[before.end() :])
                if row is not None and before[1] and not row.host:
                    row = row._replace(host=before[1])
        if row is not None:
            self._before_s = row.at_s
        return row

    def _read(self, line: str) -> ParsedLogLine | None:
        if line.startswith("{"):
            return _of_journal(line)
        uptime = _UPTIME.match(line)
        if uptime:
            host, text = _own_text(uptime[2])
            return ParsedLogLine(float(uptime[1]), False, host, text)
        record = _RECORD.match(line)
        if record:
            return ParsedLogLine(int(record[1]) / 1e6, False, "", record[2])
        talos = _TALOS.match(line)
        if talos:
            program = "kernel" if talos[1] == "kern" else talos[1]
            return _of_iso(f"{talos[2]} {program}: {talos[3]}")
        later = _SINCE_LINE_BEFORE.match(line)
        if later:
            return ParsedLogLine(self._before_s + float(later[1]), True, "", later[2])
        return self._of_ctime(line) or self._of_syslog(line) or _of_iso(line) or _of_unix(line)

    def _of_ctime(self, line: str) -> ParsedLogLine | None:
        match = _CTIME.match(line)
        if match is None:
            return None
        month, day, hour, minute, second, year, text = match.groups()
        at_s = _seconds(month, int(day), int(hour), int(minute), int(second or 0))
        if not year:
            return ParsedLogLine(self._with_year(at_s), True, "", text)
        # As many days in each year keeps times in order, and ages right within one.
        return ParsedLogLine(at_s + int(year) * YEAR_DAYS * DAY_S, True, "", text)

    def _of_syslog(self, line: str) -> ParsedLogLine | None:
        match = _SYSLOG.match(line)
        if match is None:
            return None
        month, day, hour, minute, second, rest = match.groups()
        at_s = self._with_year(_seconds(month, int(day), int(hour), int(minute), int(second)))
        return _of_program(at_s, rest)

    def _with_year(self, at_s: float) -> float:
        """A time of the year: where it goes back by more than half a year, a year has begun."""
        dated_s = at_s + self._year * YEAR_DAYS * DAY_S
        if dated_s < self._latest_s - HALF_YEAR_S:
            self._year += 1
            dated_s += YEAR_DAYS * DAY_S
        self._latest_s = dated_s
        return dated_s


def continued(line: str) -> str:
    """What a line without a time adds to the message before it; '' if it adds nothing."""
    match = _CONTINUED.match(_COLOR.sub("", line))
    return match[1] if match else ""


def _of_iso(line: str) -> ParsedLogLine | None:
    match = _ISO.match(line)
    if match is None:
        return None
    date, time, point, fraction, zone, rest = match.groups()
    zone = "+00:00" if zone is None or zone.isalpha() else zone
    try:
        at = datetime.fromisoformat(f"{date}T{time}.{(fraction or '0')[:6].ljust(6, '0')}{zone}")
    except ValueError:
        return None
    if point == ",":  # dmesg's has six digits; other programs' logs have three, and are no kernel's
        return ParsedLogLine(at.timestamp(), True, "", rest) if len(fraction) == 6 else None
    return _of_program(at.timestamp(), rest)


def _of_unix(line: str) -> ParsedLogLine | None:
    match = _UNIX.match(line)
    return _of_program(float(match[1]), match[2]) if match else None


def _of_program(at_s: float, rest: str) -> ParsedLogLine | None:
    """The line of a program on a host."""
    program = _OF_PROGRAM.match(rest)
    if program is None:
        return None
    host = program[1] or ""
    if program[2] is None:
        return ParsedLogLine(at_s, True, host, None)
    uptime = _UPTIME.match(program[2])
    return ParsedLogLine(at_s, True, host, uptime[2] if uptime else program[2])


def _own_text(text: str) -> tuple[str, str | None]:
    """The host and text of `gpu7 kernel: text`, as journalctl -o short-monotonic writes after the
    time; without a host the text itself.
    """
    program = _OF_PROGRAM.match(text)
    if program and program[2] is not None:
        return program[1] or "", program[2]
    return "", text


def _of_journal(line: str) -> ParsedLogLine | None:
    """A line of journalctl -o json."""
    try:
        entry = json.loads(line)
        at_s, text = int(entry["__REALTIME_TIMESTAMP"]) / 1e6, _message(entry["MESSAGE"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_kernel = "kernel" in (entry.get("_TRANSPORT"), entry.get("SYSLOG_IDENTIFIER"))
    return ParsedLogLine(at_s, True, str(entry.get("_HOSTNAME", "")), text if is_kernel else None)


def _message(value: object) -> str:
    """The text of the field MESSAGE: of bytes, like those of color codes, journalctl writes a list
    of numbers, of a field that is too long null, and of one that stands twice a list of both.
    """
    if not isinstance(value, list):
        return "" if value is None else str(value)
    if all(isinstance(part, int) for part in value):
        return _COLOR.sub("", bytes(value).decode("utf-8", "replace"))
    return " ".join(map(_message, value))


def _seconds(month: str, day: int, hour: int, minute: int, second: int) -> float:
    """Since the beginning of a year of 366 days."""
    days = _DAYS_BEFORE[_MONTHS.index(month)] + day - 1
    return days * DAY_S + hour * 3600.0 + minute * 60.0 + second
