"""A kernel log in a file: from dmesg, journalctl -k or syslog, or a part of one.

`source` makes a recorded machine of which only the log is known. Ages count back from the last line
of the file. Of earlier boots only a panic is kept, as /dev/kmsg has only the last one.
"""

import math
import re
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from busbw.core.errors import UsageError
from busbw.core.given_file import MAX_FILE_BYTES, unwrapped
from busbw.core.kernel_rule import BOOT_S
from busbw.host.kernel_log import logged_xids
from busbw.host.kernel_log_lines import HALF_YEAR_S, Reader, Row
from busbw.host.kernel_log_past import CALL, Newest, PastLog
from busbw.host.source import Reading

SAMPLE_BYTES = 1 << 16
MIN_SHARE = 0.5  # of the lines of a log that have a known form
MAX_NAMED_HOSTS = 3
ONLY_THE_LOG = "only the kernel log of this machine is known"
HOSTNAME = "/proc/sys/kernel/hostname"
_GZIP = b"\x1f\x8b"
_STARTED = re.compile(r"Linux version \d")
_STOPPED = re.compile(r"Kernel panic - not syncing")
_KERNEL = re.compile(r".{0,80}?\bkernel: ")


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


def source(data: bytes, name: str) -> LogSource | None:
    """The machine whose kernel log this is; None if it is no kernel log.

    UsageError, which names the file, for the logs of several hosts.
    """
    if data[:64].lstrip().startswith(b'{"schema":'):
        return None  # a snapshot, in which lines of the log may stand
    data = unwrapped(_unpacked(data))
    ends = data[:SAMPLE_BYTES] + b"\n" + data[SAMPLE_BYTES:][-SAMPLE_BYTES:]
    sample = [line for line in _lines(ends) if line.strip()]
    read = [row for row in map(Reader().read, sample) if row is not None]
    has_xid = any(map(logged_xids, sample))
    of_kernel = any(row.text is not None for row in read)
    if not has_xid and not (of_kernel and len(read) >= MIN_SHARE * len(sample)):
        return None
    lines = _lines(data)
    in_order = reversed(lines) if _descends(read) else lines
    return _machine(_rows(in_order, read[0].at_s if read else None), name)


def _unpacked(data: bytes) -> bytes:
    """The content of a file that logrotate has packed; as it is if it is damaged."""
    if not data.startswith(_GZIP):
        return data
    try:
        return zlib.decompressobj(wbits=31).decompress(data, MAX_FILE_BYTES)
    except zlib.error:
        return data


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()


def _descends(read: list[Row]) -> bool:
    """Whether the last line comes first, as journalctl -r has it."""
    times = [row.at_s for row in read if row.is_calendar]
    return bool(times) and 0 < times[0] - times[-1] < HALF_YEAR_S


def _machine(rows: Iterable[Row], name: str) -> LogSource | None:
    """The machine of a log; None if no line is of a kind that is judged or kept."""
    newest, begins_s, now_s, boot_s = Newest(), math.inf, -math.inf, math.nan
    hosts: dict[str, None] = {}  # a set that keeps the order
    panics: list[tuple[float, str]] = []
    for row in rows:
        now_s = max(now_s, row.at_s)
        if row.text is None:
            continue
        if row.host:
            hosts[row.host] = None
        if _STARTED.match(row.text):
            newest, begins_s, now_s, boot_s = Newest(), math.inf, row.at_s, row.at_s
            for at_s, text in panics:
                newest.add(at_s, text)
        if _STOPPED.search(row.text):
            panics.append((row.at_s, row.text))
        newest.add(row.at_s, row.text)
        begins_s = min(begins_s, row.at_s)
    if len(hosts) > 1:
        named = ", ".join(list(hosts)[:MAX_NAMED_HOSTS])
        raise UsageError(
            f"{name}: a kernel log of {len(hosts)} hosts: {named}",
            f"give the lines of each host: grep ' {next(iter(hosts))} ' {name} > one.log",
        )
    # Seconds of the boot's clock, as in /dev/kmsg; of an unknown start it was before the log.
    start_s = begins_s - BOOT_S - 1 if math.isnan(boot_s) else boot_s
    kept = newest.lines(start_s)
    if not kept:
        return None
    log = PastLog(now_s - start_s, begins_s - start_s, kept, is_file=True)
    return LogSource(log, next(iter(hosts), ""))


def _rows(lines: Iterable[str], first_s: float | None) -> Iterator[Row]:
    """The lines with a known form, the first of which is of `first_s`. Others with an Xid, or
    `kernel:`, have the time of the line before. Without a known form all lines are the kernel's.
    """
    reader, at_s = Reader(), first_s or 0.0
    for line in lines:
        row = reader.read(line)
        if row is None:
            marked = _KERNEL.match(line)
            if marked or first_s is None or logged_xids(line):
                row = Row(at_s, False, "", line[marked.end() :] if marked else line.lstrip("> \t"))
        if row is not None:
            at_s = row.at_s
            yield row
