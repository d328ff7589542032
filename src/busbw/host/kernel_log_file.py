"""A kernel log in a file: from dmesg, journalctl -k or syslog, or a part of one.

`source` makes a recorded machine of which only the log is known. Ages count back from the last line
of the file. Of earlier boots only a panic is kept, as /dev/kmsg has only the last one.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from busbw.core.errors import UsageError
from busbw.core.given_file import unwrapped
from busbw.core.kernel_rule import BOOT_S
from busbw.core.kernel_rules import concerned
from busbw.host.file_guess import seems
from busbw.host.kernel_log import logged_xids
from busbw.host.kernel_log_forms import one_message_a_line
from busbw.host.kernel_log_lines import HALF_YEAR_S, KernelLogReader, ParsedLogLine, continued
from busbw.host.kernel_log_past import CALL, MAX_LINES, NewestLines, PastLog
from busbw.host.source import Reading

SAMPLE_BYTES = 1 << 16
MIN_SHARE = 0.5  # of the lines of a log that have a known form
MAX_NAMED_HOSTS = 3
WRAPPED = (60, 132)  # characters of a line that a mail client or a terminal may have broken
_QUOTED = "> \t"
ONLY_THE_LOG = "only the kernel log of this machine is known"
HOSTNAME = "/proc/sys/kernel/hostname"
_STARTED = re.compile(r"Linux version \d")
_STOPPED = re.compile(r"Kernel panic - not syncing")
# what rsyslog writes instead of a message that came again
_REPEATED = re.compile(r"message repeated (\d{1,6}) times: \[ ?(?:\[ *\d+\.\d+\] )?(.*)\]$")
_KERNEL = re.compile(r".{0,80}?\bkernel:(?: |(?=\[))")
# Lines without a time, as dmesg -t and journalctl -o cat write them: of a driver, with the address
# of its device, or the first two of a boot.
_OF_DRIVER = re.compile(
    r"[>\s]*(?:NVRM: |nvidia[\w-]*: |[\w-]+ [0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?: \w+)?: )"
)
_BOOT_TITLE = re.compile(r"Linux version \d.*\nCommand line: ")


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
        return ()

    def link(self, path: str) -> str | None:
        return None

    def call(self, name: str, live: object) -> Reading:
        """The log; of other calls there is none."""
        return Reading(self._log) if name == CALL else Reading(None, ONLY_THE_LOG)


def source(data: bytes, name: str) -> LogSource | None:
    """The machine whose kernel log this is, not packed; None if it is no kernel log.

    UsageError, which names the file, for the logs of several hosts.
    """
    if data[:64].lstrip().startswith(b'{"schema":'):
        return None  # a snapshot, in which lines of the log may stand
    data = one_message_a_line(unwrapped(data))
    ends = data[:SAMPLE_BYTES] + b"\n" + data[SAMPLE_BYTES:][-SAMPLE_BYTES:]
    sample = [line for line in _lines(ends) if line.strip()]
    reader = KernelLogReader()
    rows = [reader.read(line) for line in sample]
    read = [row for row in rows if row is not None]
    of_log = _is_timed(sample, rows) if read else _is_of_kernel(sample)
    if not of_log and not (_has_xid(sample) and not seems(data)):
        return None
    lines = _lines(data)
    in_order = reversed(lines) if _descends(read) else lines
    return _machine(_rows(in_order, read[0].at_s if read else None), name)


def _is_timed(sample: Sequence[str], rows: Sequence[ParsedLogLine | None]) -> bool:
    """Whether most lines have a known form, without those that go on with another."""
    pairs = zip(sample, rows, strict=True)
    own = [row for line, row in pairs if row or not (line[0].isspace() or continued(line))]
    return len([row for row in own if row]) >= MIN_SHARE * len(own)


def _is_of_kernel(sample: Sequence[str]) -> bool:
    """Whether lines without a time are the kernel's: those of a boot, or half of them."""
    if _BOOT_TITLE.match("\n".join(sample[:2])):
        return True
    known = [line for line in sample if _OF_DRIVER.match(line) or concerned(line)]
    return bool(known) and len(known) >= MIN_SHARE * len(sample)


def _has_xid(sample: Sequence[str]) -> bool:
    return any(map(logged_xids, sample))


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()


def _descends(read: list[ParsedLogLine]) -> bool:
    """Whether the last line comes first, as journalctl -r has it."""
    times = [row.at_s for row in read if row.is_calendar]
    return bool(times) and 0 < times[0] - times[-1] < HALF_YEAR_S


def _machine(rows: Iterable[ParsedLogLine], name: str) -> LogSource | None:
    """The machine of a log; None if no line is the kernel's."""
    newest, begins_s, now_s, boot_s = NewestLines(), math.inf, -math.inf, math.nan
    hosts: dict[str, None] = {}  # a set that keeps the order
    panics: list[tuple[float, str]] = []
    lines = 0
    for row in rows:
        now_s = max(now_s, row.at_s)
        if row.text is None:
            continue
        lines += 1
        if row.host:
            hosts[row.host] = None
        if _STARTED.match(row.text):
            newest, begins_s, now_s, boot_s = NewestLines(), math.inf, row.at_s, row.at_s
            for at_s, text in panics:
                newest.add(at_s, text)
        if _STOPPED.search(row.text):
            panics.append((row.at_s, row.text))
        repeated = _REPEATED.match(row.text)
        times = min(int(repeated[1]), MAX_LINES) if repeated else 1
        for _ in range(times):
            newest.add(row.at_s, repeated[2] if repeated else row.text)
        begins_s = min(begins_s, row.at_s)
    if not lines:
        return None
    if len(hosts) > 1:
        named = ", ".join(list(hosts)[:MAX_NAMED_HOSTS])
        raise UsageError(
            f"{name}: a kernel log of {len(hosts)} hosts: {named}",
            f"give the lines of each host: grep -wF {next(iter(hosts))} {name} > one.log",
        )
    # Seconds of the boot's clock, as in /dev/kmsg; of an unknown start it was before the log.
    start_s = begins_s - BOOT_S - 1 if math.isnan(boot_s) else boot_s
    kept = newest.lines(start_s)
    log = PastLog(now_s - start_s, begins_s - start_s, kept, file_lines=lines)
    return LogSource(log, next(iter(hosts), ""))


def _rows(lines: Iterable[str], first_s: float | None) -> Iterator[ParsedLogLine]:
    """The lines with a known form, the first of which is of `first_s`. Others with an Xid, or
    `kernel:`, and those that go on with a message of the kernel, also where a mail client has
    wrapped it, have the time of the line before. Without a known form all lines are the kernel's.
    """
    reader, at_s, of_kernel, begun = KernelLogReader(), first_s or 0.0, True, ""
    for line in lines:
        row = reader.read(line)
        may_go_on = WRAPPED[0] <= len(line) <= WRAPPED[1]
        if row is None:
            text = _whole(begun, line)
            text = text or _text(line, all_of_kernel=first_s is None, goes_on=of_kernel)
            begun = f"{begun} {line.strip(_QUOTED)}" if begun and may_go_on else ""
            row = ParsedLogLine(at_s, False, "", text) if text else None
        else:
            begun = (row.text or "") if may_go_on else ""
        if row is not None:
            at_s, of_kernel = row.at_s, row.text is not None
            yield row


def _whole(begun: str, line: str) -> str:
    """The message that begins with `begun` and ends in a line without a time, if only both together
    are one that a check judges; else ''.
    """
    rest = line.strip(_QUOTED)
    if not begun or _is_judged(begun) or _is_judged(rest):
        return ""
    return next(filter(_is_judged, (f"{begun} {rest}", f"{begun}{rest}")), "")


def _is_judged(text: str) -> bool:
    return bool(concerned(text) or logged_xids(text))


def _text(line: str, *, all_of_kernel: bool, goes_on: bool) -> str:
    """The kernel's text in a line without a time; '' if it has none."""
    marked = _KERNEL.match(line)
    if marked:
        return line[marked.end() :]
    if all_of_kernel or logged_xids(line):
        return line.lstrip(_QUOTED)
    return continued(line) if goes_on else ""
