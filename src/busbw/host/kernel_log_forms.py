"""Kernel logs in files that are not one message a line: journalctl -o verbose, its export and its
JSON, the JSON of dmesg, and the report of nvidia-bug-report.sh.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator

_FIELDS = ("__REALTIME_TIMESTAMP", "_HOSTNAME", "_TRANSPORT", "SYSLOG_IDENTIFIER", "MESSAGE")
_EXPORT = re.compile(rb"\s*_{0,2}[A-Z][A-Z0-9_]*=")
_TIME = b"__REALTIME_TIMESTAMP="
# journalctl -o verbose: a time with the entry's cursor, then fields indented by four blanks. Lines
# of one value are indented by more.
_CURSOR = r" \[s=[0-9a-f]*;i=.*\]"
_VERBOSE = re.compile(rf"^(\S.*?){_CURSOR}\n((?: {{4}}.*\n?)*)", re.MULTILINE)
_VERBOSE_FIELD = re.compile(r"^ {4}(\w+)=(.*(?:\n {5,}.*)*)", re.MULTILINE)
_PRETTY = re.compile(rb"\s*\{\s*\n\s*\"")
_SIZE_BYTES = (
    8  # before the value of a field that has line breaks (systemd, JOURNAL_EXPORT_FORMATS)
)
_REPORT = b"Start of NVIDIA bug report log file"
_HEAD_BYTES = 4096
# nvidia-bug-report.sh writes a row of underscores before each part. The same messages stand in
# several parts, with times of different clocks.
_PARTS = (
    re.compile(rb"^(?:\S*/)?dmesg[^\n]*:$\n(.*?)(?=^____|\Z)", re.MULTILINE | re.DOTALL),
    re.compile(
        rb"^ *journalctl -b -0:$\n(.*?)(?=^____|^ *journalctl|\Z)", re.MULTILINE | re.DOTALL
    ),
)


def one_message_a_line(data: bytes) -> bytes:
    """The log with each message on a line; as it is if it has no such form."""
    if _REPORT in data[:_HEAD_BYTES]:
        return _log_of_report(data)
    if _EXPORT.match(data) and (data.startswith(_TIME) or b"\n" + _TIME in data):
        return _json_lines(_exported(data))
    if re.search(_CURSOR.encode(), data[:_HEAD_BYTES]):
        return _syslog_lines(data.decode("utf-8", "replace")).encode()
    if _PRETTY.match(data):
        documents = list(_documents(data.decode("utf-8", "replace")))
        records = documents[0].get("dmesg") if documents else None
        if isinstance(records, list):
            return "\n".join(map(_dmesg_line, records)).encode()
        if any(_FIELDS[0] in document for document in documents):
            return _json_lines(documents)
    return data


def _log_of_report(data: bytes) -> bytes:
    for part in _PARTS:
        match = part.search(data)
        if match and match[1].strip():
            return match[1]
    return data


def _syslog_lines(verbose: str) -> str:
    """The entries of journalctl -o verbose as journalctl -o short-full has them."""
    lines = []
    for time, block in _VERBOSE.findall(verbose):
        fields = {"SYSLOG_IDENTIFIER": "unknown", "MESSAGE": "", "_HOSTNAME": ""}
        fields |= _VERBOSE_FIELD.findall(block)
        lines.append("{0} {_HOSTNAME} {SYSLOG_IDENTIFIER}: {MESSAGE}".format(time, **fields))
    return "\n".join(lines)


def _exported(data: bytes) -> Iterator[dict[str, object]]:
    """The entries of journalctl -o export: lines `NAME=value`, and an empty one after each entry.

    A value with line breaks has its size before it, in a line of its own without `=`.
    """
    stream, entry = io.BytesIO(data), dict[str, object]()
    for line in iter(stream.readline, b""):
        name, equals, value = line.rstrip(b"\r\n").partition(b"=")
        if not name:
            yield entry
            entry = {}
            continue
        if not equals:
            size = int.from_bytes(stream.read(_SIZE_BYTES), "little")
            value = stream.read(min(size, len(data)) + 1)[:-1]
        entry[name.decode("ascii", "replace")] = value.decode("utf-8", "replace")
    yield entry


def _documents(text: str) -> Iterator[dict[str, object]]:
    """The JSON objects that follow each other, up to one that is broken."""
    decoder, place = json.JSONDecoder(), 0
    while (place := text.find("{", place)) >= 0:
        try:
            document, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        yield document


def _json_lines(entries: Iterable[dict[str, object]]) -> bytes:
    """The entries as journalctl -o json has them."""
    kept = ({name: entry[name] for name in _FIELDS if name in entry} for entry in entries)
    return "\n".join(json.dumps(entry) for entry in kept if entry).encode()


def _dmesg_line(record: object) -> str:
    """The line that dmesg writes of `{"time": 1.5, "msg": "text"}`."""
    if not isinstance(record, dict):
        return ""
    text = str(record.get("msg", "")).replace("\n", " ")
    try:
        return f"[{float(record['time']):12.6f}] {text}"
    except (KeyError, TypeError, ValueError):
        return text
