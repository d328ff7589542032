"""No log, however broken, raises anything but UsageError, and what is read can be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from printed_tables import OLD, modern, old

from busbw.core.errors import UsageError
from busbw.report.read import read
from busbw.report.registry import VIEWS

HEAD = """\
# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
# nThread 1 nGpus 2 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#  Rank  0 Group  0 Pid   1386 on      node1 device  0 [0000:00:06] NVIDIA H200
#  Rank  1 Group  0 Pid   1386 on      node1 device  1 [0000:00:07] NVIDIA H200
"""
SAMPLES = [
    HEAD + modern("all_reduce", 2).text,
    modern("hypercube", 4).text,
    *(old(name, 8).text for name in OLD),
]
NINES = "9" * 5000
JUNK = [
    NINES,
    "nan",
    "inf",
    "-1",
    "1e400",
    "N/A",
    "0",
    "1__0",
    "1,,2",
    "(us)",
    "(GB/s)",
    "busbw",
    "size",
    "time",
    "cputime",
    "timestamp",
    "#iters",
    "algo",
    "#channels",
    "#wrong",
    "error",
    "bytes",
    "\0",
    "\n",
    "٣",
    "１",
    "Rank 999999999 Pid 1 on x device 0 [] y",
    f"nThread {NINES}",
    "Avg bus bandwidth : 1e400",
    "Avg bus bandwidth : .",
    f"Out of bounds values : {NINES}",
    " " * 40,
    "\x1b[0m",
    "float",
    "2.5.",
    "_",
    f"NCCL version {NINES}.1.1",
    "# GPU memory usage : . GB",
    "a_perf -b",
    " .. a pid 1: Test failure x",
]


def survives(text: str) -> None:
    try:
        result = read(text.encode(), "log")
    except UsageError as error:
        assert error.hint
    else:
        assert all(view.render(result) is not None for view in VIEWS)


@given(
    sample=st.sampled_from(SAMPLES),
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from(JUNK), st.integers(0, 80)),
        min_size=1,
        max_size=5,
    ),
)
def test_junk_between_and_instead_of_words_is_survived(
    sample: str, edits: list[tuple[float, str, int]]
) -> None:
    for share, junk, cut in edits:
        at = sample.find(" ", int(share * len(sample))) + 1
        sample = sample[:at] + junk + " " + sample[at + cut :]
    survives(sample)


def test_a_title_that_stands_behind_the_figures_may_come_before_them() -> None:
    sample = modern("all_reduce", 2).text
    titles = "# size count timestamp busbw #wrong time algbw busbw #wrong"
    survives("\n".join(titles if "algbw" in line else line for line in sample.splitlines()))


@pytest.mark.parametrize(
    "unit",
    [
        "9",
        "a.",
        "a.b.NCCL ",
        "size busbw time ",
        "Rank 1 ",
        "x: Test ",
        "[2026-01-01 ",
        "8 2 float ",
    ],
)
def test_long_lines_and_many_lines_are_survived(unit: str) -> None:
    survives(unit * 100_000)
    survives((unit * 40 + "\n") * 500)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(range(128, 256)) * 800, "a binary file"),
        (b"\x01\x02\x03" * 999, "a binary file"),
        (b'{"a":' + b"[" * 300_000 + b"]" * 299_000, "JSON: maximum recursion depth"),
        (b'{"a":' + b"[1," * 200_000, "JSON: maximum recursion depth"),
    ],
)
def test_binary_files_and_deep_ones_are_refused_before_they_are_searched(
    data: bytes, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        read(data, "file")


def test_a_log_with_zeros_and_odd_bytes_is_text() -> None:
    log = (HEAD + modern("all_reduce", 2).text).encode()
    assert read(b"\0" * 4096 + b"\xe4\xf6\xfc\n" + log, "log").rows
