"""Names files that busbw does not read, by what they begin with or hold: so that an error says
what a file is, not only what it is not.
"""

import re
from dataclasses import dataclass

HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Foreign:
    """A kind of file: the pattern that only it has, what to call it, and what to do."""

    pattern: re.Pattern[bytes]
    name: str
    hint: str


LOG = "give the output of nccl-tests, with its lines of titles and rows"
CAPTURE = "record the job: busbw capture --help"
KINDS: tuple[Foreign, ...] = (
    Foreign(
        re.compile(rb"SQLite format 3\0"),
        "an SQLite database, which Nsight Systems and rocprof export",
        CAPTURE,
    ),
    Foreign(
        re.compile(rb"algbw\(GB/s\)[\s\S]{0,4096}\b(?:thread|warp|block)\b"),
        "a table of NVSHMEM's perftest",
        LOG,
    ),
    Foreign(re.compile(rb"# OSU [\w-]+ "), "a table of the OSU micro-benchmarks", LOG),
    Foreign(
        re.compile(rb"Memory type: [\s\S]{0,2048}Bandwidth, GB/s"), "a table of ucc_perftest", LOG
    ),
    Foreign(re.compile(rb"nvbandwidth Version"), "output of nvbandwidth", LOG),
    Foreign(
        re.compile(rb"#bytes\s+#iterations"),
        "output of perftest (ib_write_bw)",
        "busbw link --help",
    ),
    Foreign(
        re.compile(rb"\|\s*payload\s*\|\s*busbw\s*\|"),
        "a summary of all_reduce_bench.py, without times and types",
        LOG,
    ),
    Foreign(
        re.compile(rb"nccl-bw[\w:-]*/\w+_\d+_busbw"),
        "results of SuperBench",
        "give the log of its nccl-bw benchmark",
    ),
    Foreign(
        re.compile(rb"Avg bus bandwidth is "),
        "the verdict of a health check, an average without its table",
        LOG,
    ),
    Foreign(
        re.compile(rb"(?m)^\s*busbw: +[\d.]+ Gbps"), "a list of busbw without sizes and times", LOG
    ),
    Foreign(
        re.compile(rb"\s*\{\s*\"(?:annotations|__inputs)\"[\s\S]{0,4096}\"panels\""),
        "a Grafana dashboard",
        LOG,
    ),
)


def kind(data: bytes) -> Foreign | None:
    """What the file is, None if no kind is recognized."""
    head = data[:HEAD]
    return next((one for one in KINDS if one.pattern.search(head)), None)
