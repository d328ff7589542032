"""`busbw watch` in a separate process: formats, the exporter, signals, and a reader that goes
away.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import parser

ROOT = Path(__file__).parents[2]
SOURCE = str(ROOT / "src")
WATCH = [sys.executable, "-m", "busbw", "watch", "--no-gpus"]


def links() -> bool:
    """Whether this machine has an interface besides loopback."""
    return any(name != "lo" for _, name in socket.if_nameindex())


pytestmark = pytest.mark.skipif(not links(), reason="no network interface but loopback")


def start(*words: str, **fields) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*WATCH, *words],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **fields,
    )


def test_count_of_intervals_as_json(here):
    done = here(
        "busbw", "watch", "--no-gpus", "--interval", "100ms", "--count", "3", "--format", "json"
    )
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, len(lines)) == (0, 3)
    assert all(line["schema"] == "busbw.watch/1" and line["links"] for line in lines)
    assert all(line["seconds"] == pytest.approx(0.1, abs=0.09) for line in lines)


def test_table_and_text_of_rdma_monitor(here):
    table = here(
        "busbw", "watch", "--no-gpus", "--interval", "0.1", "--count", "1"
    ).out.splitlines()
    assert table[1].startswith("link") and len(table) >= 3
    text = here(
        "busbw",
        "watch",
        "--no-gpus",
        "--interval",
        "0.1",
        "--count",
        "1",
        "--format",
        "rdma_monitor",
    ).out.splitlines()
    assert text[0] == text[-1] == "------" and any(
        re.match(r"tx_rate: [\d.]+$", line) for line in text
    )


def test_a_watch_ends_after_the_seconds_given(here):
    begun = time.monotonic()
    done = here(
        "busbw", "watch", "--no-gpus", "--interval", "100ms", "--seconds", "1", "--format", "json"
    )
    assert (done.code, len(done.out.splitlines())) == (0, 10) or "missed" in done.out
    assert time.monotonic() - begun >= 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_a_whole_line(number):
    with start("--interval", "100ms", "--format", "json") as process:
        assert process.stdout
        first = process.stdout.readline()
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    assert output == "" or output.endswith("\n")
    assert all(json.loads(line)["schema"] for line in (first + output).splitlines())


def test_the_reader_of_stdout_may_close_it():
    with start("--interval", "100ms", "--format", "json") as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0


def test_metrics_are_served_while_it_watches():
    with start("--listen", "127.0.0.1:0", "--interval", "100ms") as process:
        assert process.stdout and process.stderr
        match = re.fullmatch(
            r"note: serving (http://127\.0\.0\.1:\d+/metrics)\n", process.stderr.readline()
        )
        assert match
        pages = []
        for _ in range(2):
            with urllib.request.urlopen(match[1], timeout=10) as answer:
                pages.append(answer.read().decode())
            time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
    assert (process.returncode, output) == (0, ""), "without --format nothing is printed"
    samples = [
        int(re.search(r"^busbw_watch_samples_total (\d+)$", page, re.MULTILINE)[1])
        for page in pages
    ]
    assert samples[1] > samples[0]
    names = {family.name for family in parser.text_string_to_metric_families(pages[1])}
    assert "busbw_network_receive_bytes" in names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interval", "50ms"], "--interval 50ms: must be seconds from 0.1 to 3600"),
        (["--interval", "soon"], "--interval soon: must be"),
        (["--port", "not-there"], "--port not-there: no such port here"),
        (
            ["--listen", "0.0.0.0:28729"],
            "--listen 0.0.0.0:28729: other hosts could read the counters",
        ),
        (
            ["--listen", "28729", "--token-file", "none"],
            "--token-file none: No such file or directory",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_a_hint(here, words, message):
    done = here("busbw", "watch", "--no-gpus", *words)
    assert done.code == 2 and message in done.err and "\nhint: " in done.err
