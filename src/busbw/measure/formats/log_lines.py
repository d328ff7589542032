"""The first look at a file that may hold a run.

`own_lines` returns the lines of a log as their program printed them: without what launchers, shells
and log collectors put around each. No list of launchers is needed: what stands before the titles of
the table stands before its other lines too. Digits may differ, which are ranks, process ids and
times of day.

`kind` recognizes files that busbw does not read, so that an error says what a file is, not only
what it is not. `loads` reads a JSON document that may have been cut off.
"""

import json
import re
import sys
from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.measure.formats.read_nccl_tests_rows import columns, starts_row

HEAD = 1 << 16
# The part of a file's head that may be no text: a console's log holds single odd bytes.
_BINARY_PART = 0.1
_ODD = re.compile("[\0-\b\ufffd]")
LOG = "give the output of nccl-tests, with its lines of titles and rows"
CAPTURE = "record the job: busbw capture --help"
CLOSING = {"{": "}", "[": "]"}
# A string, which may be cut off, or what separates values.
TOKEN = re.compile(r'"(?:\\.|[^"\\])*(?:"|$)|[][{},]', re.DOTALL)
# NCCL's own messages, which may stand between rows and inside one.
_TIME = r"(?:\[\d{4}-\d\d-\d\d[ T][\d:.]+\] )?"
_MESSAGE = r":\d+:\d+ (?:\[\d+\] )?NCCL (?:INFO|WARN|TRACE|ERROR)[^\n]*\n?"
NCCL_LINE = re.compile(rf"{_TIME}[A-Za-z][\w.-]{{0,252}}{_MESSAGE}")
# Such a line of a host whose name begins with a digit, as the ids of containers do. Inside a row it
# cannot be told from the figure before it, if the host is not known.
_DIGIT_HOST = re.compile(rf"{_TIME}(\d[\w.-]{{0,252}}){_MESSAGE}")
_MOST_HOSTS = 1024
MAX_LABELS, LONGEST_LABEL = 16, 300
# Longer lines are left out: none of these programs prints any, and some patterns would take the
# square of the characters.
MAX_LINE_LENGTH = 4096
_COLOR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
# What web pages and spreadsheets put in place of a space, or beside it.
SPACES = str.maketrans(
    dict.fromkeys("\t\u00a0\u2007\u202f\u3000", " ") | dict.fromkeys("\ufeff\u200b")
)
_CLOSING_TAG = re.compile(r"</[A-Za-z]\w*>$")
_LONGEST_TAG = 32
# What mpirun puts before lines, or before what is written at once.
_RANK_LABEL = re.compile(r"^[ \t]*\[\d+(?:,\d+)?\](?:<std(?:out|err)>:)?")
_DIFFERS = re.compile(r"(\d+)|(\s+)|(std(?:out|err))")


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A kind of file: the pattern that only it has, what to call it, and what to do."""

    pattern: re.Pattern[bytes]
    name: str
    hint: str


KINDS: tuple[ForeignFile, ...] = (
    ForeignFile(
        re.compile(rb"\A(?:PK\x03\x04|BZh\d1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd|[\s\S]{257}ustar)"),
        "an archive",
        "unpack it: unzip, tar -xf, bunzip2, xz -d or zstd -d; then busbw show FOLDER",
    ),
    ForeignFile(
        re.compile(rb"SQLite format 3\0"),
        "an SQLite database, which Nsight Systems and rocprof export",
        CAPTURE,
    ),
    ForeignFile(
        re.compile(rb"algbw\(GB/s\)[\s\S]{0,4096}\b(?:thread|warp|block)\b"),
        "a table of NVSHMEM's perftest",
        LOG,
    ),
    ForeignFile(re.compile(rb"# OSU [\w-]+ "), "a table of the OSU micro-benchmarks", LOG),
    ForeignFile(
        re.compile(rb"Memory type: [\s\S]{0,2048}Bandwidth, GB/s"), "a table of ucc_perftest", LOG
    ),
    ForeignFile(re.compile(rb"nvbandwidth Version"), "output of nvbandwidth", LOG),
    ForeignFile(
        re.compile(rb"#bytes\s+#iterations"),
        "output of perftest (ib_write_bw)",
        "busbw link --help",
    ),
    ForeignFile(
        re.compile(rb"\|\s*payload\s*\|\s*busbw\s*\|"),
        "a summary of all_reduce_bench.py, without times and types",
        LOG,
    ),
    ForeignFile(
        re.compile(rb"nccl-bw[\w:-]*/\w+_\d+_busbw"),
        "results of SuperBench",
        "give the log of its nccl-bw benchmark",
    ),
    ForeignFile(
        re.compile(rb"Avg bus bandwidth is "),
        "the verdict of a health check, an average without its table",
        LOG,
    ),
    ForeignFile(
        re.compile(rb"(?m)^\s*busbw: +[\d.]+ Gbps"), "a list of busbw without sizes and times", LOG
    ),
    ForeignFile(re.compile(rb"Network Tests v\d[\s\S]{0,256} MPI ranks"), "output of GPCNet", LOG),
    ForeignFile(
        re.compile(rb"^\s*(?:<\?xml[^>]*>\s*)?<system version="),
        "NCCL's topology of a host as a measurement",
        "what it could reach: busbw predict --topo FILE",
    ),
    ForeignFile(
        re.compile(
            rb"(?m)^[ \t]*(?:\x1b\[\d+m)?\s*GPU0\s[\s\S]{0,4096}\bX\b[\s\S]{0,9000}\bSYS\s+="
        ),
        "the matrix of nvidia-smi topo -m",
        "NCCL_TOPO_DUMP_FILE=topo.xml in a run, then busbw predict --topo topo.xml",
    ),
    ForeignFile(
        re.compile(rb"^\s*\{\s*\"start\":\s*\{[\s\S]{0,4096}\"iperf"),
        "JSON of iperf3",
        "busbw link, which tests every pair of hosts",
    ),
    ForeignFile(
        re.compile(
            rb"\b(?:[Dd]ispatch|[Cc]ombine)(?: \+ combine)?(?: bandwidth)?: [\d.]+ GB/s"
            rb"|\[tuning\] (?:Best )?(?:dispatch|combine|SMs)\b"
        ),
        "output of a test of DeepEP",
        "busbw moe measures dispatch and combine; docs/how-to/moe-dispatch.md compares the two",
    ),
    ForeignFile(
        re.compile(rb"Tensor Shape +Tensor Size +\w"),
        "a table of vLLM's benchmark_device_communicators.py",
        "busbw backends measures vLLM's all-reduces beside the others",
    ),
    ForeignFile(
        re.compile(rb"\bName +Self C(?:PU|UDA) %"),
        "a table of torch.profiler, without the bytes of calls",
        'give its trace: prof.export_chrome_trace("trace.json")',
    ),
    ForeignFile(
        re.compile(rb"(?i)\bnixl_?bench"),
        "a file about nixlbench, without its table",
        "give what nixlbench prints",
    ),
    ForeignFile(
        re.compile(rb"\s*\{\s*\"(?:annotations|__inputs)\"[\s\S]{0,4096}\"panels\""),
        "a Grafana dashboard",
        LOG,
    ),
    ForeignFile(
        re.compile(rb"\A[_\s]*Start of NVIDIA bug report log file"),
        "a report of nvidia-bug-report.sh",
        "copy the part of dmesg or journalctl to a file: busbw show reads that",
    ),
    ForeignFile(
        re.compile(rb"(?m)^Job summary\r?\n=+\r?\n[\s\S]{0,4096}^Communicators\.\.\."),
        "a report of NCCL's RAS",
        "while the job runs: busbw check job, which asks RAS twice",
    ),
    ForeignFile(
        re.compile(rb"(?m)^\[\w{3} \d\d \d{4} [\d:]{8}\] \[(?:INFO|WARNING|ERROR)\] \[tid \d+\] "),
        "a log of NVIDIA's fabric manager",
        "sudo dmesg > FILE; busbw check --from FILE: the driver logs errors of NVSwitches there",
    ),
    ForeignFile(
        re.compile(
            rb"\A(?![\s\S]*(?:nThread|busbw))[\s\S]*(?:Traceback \(most recent call last\)"
            rb"|\[rank\d+\]: ?(?:\[|\w*Error)|\[c10d\]|(?m:^(?:\(\w+ pid=\d+[^)\n]*\) )?"
            rb"(?:INFO|WARNING|ERROR) \d\d-\d\d [\d:]{8} ))"
        ),
        "a log of a program, without a call or a failure of NCCL",
        "NCCL_DEBUG=WARN in a new run: if NCCL fails, it says why",
    ),
)


def is_binary(data: bytes) -> bool:
    """Whether this is no text: a tenth of its first characters are controls or no UTF-8. Zeros are
    left out, which a crash leaves in a log.
    """
    head = data[:HEAD].replace(b"\0", b"").decode("utf-8", "replace")
    return len(_ODD.findall(head)) > _BINARY_PART * len(head) or (bool(data) and not head)


def kind(data: bytes) -> ForeignFile | None:
    """What the file is; None if no kind is recognized."""
    head = data[:HEAD]
    return next((foreign for foreign in KINDS if foreign.pattern.search(head)), None)


def loads(text: str) -> tuple[object, bool]:
    """The value of a JSON document, and whether the document was whole.

    Of a document that was cut off, it has all values before the last comma or bracket. UsageError
    with the position if it is not JSON even so.
    """
    try:
        return json.loads(text), True
    except json.JSONDecodeError as error:
        broken = error
    except (RecursionError, ValueError) as error:  # ValueError: an integer of thousands of digits
        raise UsageError(f"JSON: {error}", "give a file that a benchmark wrote") from error
    try:
        return json.loads(closed(text)), False
    except (ValueError, RecursionError):
        excerpt = text[broken.pos : broken.pos + 20]
        position = f"line {broken.lineno}, column {broken.colno}, before {excerpt!r}"
        raise UsageError(
            f"JSON: {broken.msg} at {position}",
            "give the file as its program wrote it; only a missing end can be mended",
        ) from broken


def closed(text: str) -> str:
    """`text` up to its last whole value, with the brackets closed that are still open there."""
    to_close: list[str] = []
    deepest = sys.getrecursionlimit()  # deeper ones cannot be read either
    end, brackets = 0, ""
    for token in TOKEN.finditer(text):
        if token[0] in CLOSING:
            if len(to_close) == deepest:
                return text
            to_close.append(CLOSING[token[0]])
        elif token[0] in "}],":
            if token[0] != "," and to_close:
                to_close.pop()
            end = token.start() if token[0] == "," else token.end()
            brackets = "".join(reversed(to_close))
    return text[:end] + brackets


def own_lines(text: str) -> list[str]:
    """The lines without labels, colors and NCCL's messages.

    A row that a message cut is whole again.
    """
    colorless = _COLOR.sub("", text).translate(SPACES).splitlines(keepends=True)
    lines = [_without_end(line) for line in colorless if len(line) <= MAX_LINE_LENGTH]
    label = _label_pattern(lines) or _RANK_LABEL
    lines = [_without_label(line, label) for line in lines]
    message = _message_pattern(lines)
    without_nccl = [message.sub("", line) if "NCCL " in line else line for line in lines]
    return "".join(without_nccl).splitlines()


def _message_pattern(lines: list[str]) -> re.Pattern[str]:
    """A pattern of NCCL's messages, also from hosts that begin lines with names like 38dcf168."""
    found = (_DIGIT_HOST.match(line) for line in lines if "NCCL " in line)
    hosts = sorted({match[1] for match in found if match})[:_MOST_HOSTS]
    if not hosts:
        return NCCL_LINE
    names = "|".join(map(re.escape, hosts))
    return re.compile(rf"{_TIME}(?:{names}){_MESSAGE}|{NCCL_LINE.pattern}")


def _without_label(line: str, label: re.Pattern[str]) -> str:
    """The line without its label.

    A row has it more than once if the launcher labels what is written at once, not whole lines.
    """
    found = label.match(line)
    if found is None:
        return line
    rest, text = line[found.end() :], found[0].strip()
    return rest.replace(text, "") if text.startswith("[") and starts_row(rest) else rest


def _without_end(line: str) -> str:
    """The line without what ends a cell of a table, code in Markdown or an XML element."""
    text = line.rstrip()
    end = line[len(text) :]
    while text.endswith(("|", "`", ">")):
        tag = _CLOSING_TAG.search(text[-_LONGEST_TAG:])
        if tag is not None:
            text = text[: -len(tag[0])].rstrip()
        elif text.endswith(">"):
            break
        else:
            text = text[:-1].rstrip()
    return text + end


def _label_pattern(lines: list[str]) -> re.Pattern[str] | None:
    """A pattern of what stands before the titles of tables; None where that is nothing."""
    patterns: dict[str, None] = {}  # a set that keeps the order
    for line in lines:
        titles = columns(line)
        if titles is None or not titles.label.strip() or len(titles.label) > LONGEST_LABEL:
            continue
        if len(patterns) < MAX_LABELS:
            patterns[_pattern(titles.label)] = None
    # The longest comes first, as a label may begin with another.
    return re.compile("|".join(sorted(patterns, key=len, reverse=True))) if patterns else None


def _pattern(label: str) -> str:
    """A pattern of a label in which digits, spaces and the stream's name may differ."""
    text = label.strip()
    parts, end = [], 0
    for match in _DIFFERS.finditer(text):
        parts.append(re.escape(text[end : match.start()]))
        if match[1]:
            parts.append(r"\d+")
        elif match[2]:
            parts.append(r"\s+")
        else:
            parts.append("std(?:out|err)")
        end = match.end()
    parts.append(re.escape(text[end:]))
    spaces = len(label) - len(label.rstrip())
    return rf"^[ \t]*{''.join(parts)}" + (rf"(?=\s|$)[ \t]{{0,{spaces}}}" if spaces else "")
