"""A kernel log in a file: from dmesg, journalctl -k or /var/log/kern.log, or a part of one.

`source` makes a recorded machine of which only the log is known. Ages count back from the last line
of the log. Lines before the last start of the kernel are left out, as /dev/kmsg does not have them.
"""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from busbw.host.kernel_log import logged_xids
from busbw.host.kernel_log_past import CALL, Newest, PastLog
from busbw.host.source import Reading

HEAD = 1 << 16
ONLY_THE_LOG = "only the kernel log of this machine is known"
HOSTNAME = "/proc/sys/kernel/hostname"
_UPTIME = rb"\[ *\d{1,9}\.\d{6}\]"
_KNOWN = re.compile(
    rb"NVRM: Xid \(|: SXid \(PCI:"
    rb"|^(?:<\d{1,3}>)?" + _UPTIME + rb" \S"
    rb"|^(?:[a-z]+ *:[a-z]+ *: )?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]"
    rb"|^\S[^\n]{0,60} kernel: |^\d{1,3},\d{1,12},\d{1,18},[^;\n]{0,40};",
    re.MULTILINE,
)
# "kern  :err   : " of dmesg -x, "[T1234]" of CONFIG_PRINTK_CALLER
_LEVEL = r"(?:<\d{1,3}>|[a-z]+ *:[a-z]+ *: )?"
_SINCE_BOOT = re.compile(rf"{_LEVEL}\[ *(\d{{1,9}}\.\d{{6}})\] ?(?:\[ *[TC]\d+\] ?)?(.*)", re.ASCII)
_RECORD = re.compile(r"\d{1,3},\d{1,12},(\d{1,18}),[^;]*;(.*)", re.ASCII)
_CTIME = re.compile(
    rf"{_LEVEL}\[(\w{{3}} \w{{3}} [ \d]\d \d\d:\d\d:\d\d \d{{4}})\] ?(.*)", re.ASCII
)
_ISO = re.compile(
    rf"{_LEVEL}"
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,6})\d*)?(Z|[+-]\d\d:?\d\d)?"
    r" (?:(\S{1,255}) kernel: )?(.*)",
    re.ASCII,
)
_SYSLOG = re.compile(
    r"(\w{3}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?:\.\d+)? (\S{1,255}) kernel: (.*)", re.ASCII
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LEAP_YEAR, _HALF_YEAR_S = 2000, 183 * 86400.0  # syslog names no year
_STARTED = re.compile(r"Linux version \d")


class LogSource:
    """A recorded machine of which only the kernel log is known."""

    def __init__(self, log: PastLog, hostname: str) -> None:
        self._log, self._hostname = msgspec.json.encode(log), hostname

    def read(self, path: str) -> Reading:
        """The host that the log names; of other files there is none."""
        if path == HOSTNAME and self._hostname:
            return Reading(self._hostname.encode())
        return Reading(None, ONLY_THE_LOG)

    def names(self, path: str) -> tuple[str, ...]:
        """No directory is known."""
        return ()

    def link(self, path: str) -> str | None:
        """No link is known."""
        return None

    def call(self, name: str, live: object) -> Reading:
        """The log; of other calls there is none."""
        return Reading(self._log) if name == CALL else Reading(None, ONLY_THE_LOG)


def source(data: bytes) -> LogSource | None:
    """The machine whose kernel log this is; None if it is no kernel log."""
    if not _KNOWN.search(data[:HEAD] + b"\n" + data[HEAD:][-HEAD:]):
        return None
    newest, begins_s, now_s, hostname = Newest(), math.inf, -math.inf, ""
    for at_s, host, text in _lines(data.decode("utf-8", "replace")):
        if _STARTED.match(text):
            newest, begins_s, now_s = Newest(), math.inf, -math.inf
        newest.add(at_s, text)
        begins_s, now_s, hostname = min(begins_s, at_s), max(now_s, at_s), host or hostname
    if now_s < begins_s:
        return None
    return LogSource(PastLog(now_s, begins_s, newest.lines()), hostname)


def _lines(text: str) -> Iterator[tuple[float, str, str]]:
    """The time, host and text of each line of the kernel. A line without a time, which has an Xid,
    has that of the line before.
    """
    at_s, clock = 0.0, _Clock()
    for row in text.splitlines():
        stamped = clock.read(row)
        if stamped is None and not logged_xids(row):
            continue
        at_s, host, words = stamped or (at_s, "", row.strip())
        uptime = _SINCE_BOOT.match(words)
        yield at_s, host, uptime[2] if uptime else words


class _Clock:
    """Reads the times of lines, in seconds of any clock. Syslog's have no year: where they go back
    by more than half a year, a year has begun.
    """

    def __init__(self) -> None:
        self._year, self._latest_s = _LEAP_YEAR, 0.0

    def read(self, line: str) -> tuple[float, str, str] | None:
        """Time, host and text of a line; None if it is not the kernel's."""
        since_boot = _SINCE_BOOT.match(line)
        if since_boot:
            return float(since_boot[1]), "", since_boot[2]
        record = _RECORD.match(line)
        if record:
            return int(record[1]) / 1e6, "", record[2]
        try:
            return self._of_ctime(line) or self._of_iso(line) or self._of_syslog(line)
        except ValueError:  # a day that no month has
            return None

    @staticmethod
    def _of_ctime(line: str) -> tuple[float, str, str] | None:
        match = _CTIME.match(line)
        if match is None:
            return None
        _, month, day, time, year = match[1].split()
        hour, minute, second = map(int, time.split(":"))
        return _seconds(int(year), month, int(day), hour, minute, second), "", match[2]

    @staticmethod
    def _of_iso(line: str) -> tuple[float, str, str] | None:
        match = _ISO.match(line)
        if match is None:
            return None
        zone = (match[3] or "Z").replace("Z", "+00:00")
        at = datetime.fromisoformat(f"{match[1]}.{(match[2] or '0').ljust(6, '0')}{zone}")
        return at.timestamp(), match[4] or "", match[5]

    def _of_syslog(self, line: str) -> tuple[float, str, str] | None:
        match = _SYSLOG.match(line)
        if match is None:
            return None
        month, host, text = match[1], match[6], match[7]
        day, hour, minute, second = (int(match[group]) for group in (2, 3, 4, 5))
        at_s = _seconds(self._year, month, day, hour, minute, second)
        if at_s < self._latest_s - _HALF_YEAR_S:
            self._year += 1
            at_s = _seconds(self._year, month, day, hour, minute, second)
        self._latest_s = at_s
        return at_s, host, text


def _seconds(year: int, month: str, day: int, hour: int, minute: int, second: int) -> float:
    """ValueError if there is no such day."""
    number = _MONTHS.index(month) + 1
    return datetime(year, number, day, hour, minute, second, tzinfo=UTC).timestamp()
