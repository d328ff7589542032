"""Processes of this machine as the kernel reports them."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from busbw.host import process

SOURCE = str(Path(__file__).parents[3] / "src")


def test_the_limit_of_open_files_is_raised_to_the_most_allowed() -> None:
    code = (
        "import resource as r; from busbw.host.process import allow_open_files as a; a();"
        " print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    words = ["prlimit", "--nofile=64:4096", sys.executable, "-c", code]
    result = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True
    )
    assert result.stdout == "(4096, 4096)\n"


def test_the_times_of_a_thread_grow_with_its_work() -> None:
    before = process.thread_times(threading.get_native_id())
    end_s = time.thread_time() + 0.05
    while time.thread_time() < end_s:
        pass
    after = process.thread_times(threading.get_native_id())
    assert before is not None
    assert after is not None
    assert 0.04 < after[0] - before[0] < 1
    assert before[1] <= after[1] < time.clock_gettime(time.CLOCK_BOOTTIME)
    assert process.thread_times(2**22 + 1) is None, "no such thread"


def test_process_states_running_stopped_dead_and_absent() -> None:
    child = subprocess.Popen(["sleep", "60"])
    assert process.state(child.pid) in "SRD"
    assert process.name(child.pid) == "sleep"
    child.send_signal(signal.SIGSTOP)
    assert _becomes(child.pid, "T")
    assert process.fatal_signal(child.pid) == 0
    process.kill(child.pid)
    assert _becomes(child.pid, "Z")
    assert process.fatal_signal(child.pid) == signal.SIGKILL
    child.wait()
    assert process.state(child.pid) == process.GONE
    assert process.fatal_signal(child.pid) == 0
    assert process.name(child.pid) == ""
    process.kill(child.pid)  # no error


def _becomes(pid: int, letter: str) -> bool:
    end = time.monotonic() + 5
    while process.state(pid) != letter and time.monotonic() < end:
        time.sleep(0.01)
    return process.state(pid) == letter


def test_a_process_name_may_contain_brackets_and_blanks() -> None:
    assert process.stat_fields("12 (a) b) (c) T 7 12 12") == ("T", 7)
    assert process.stat_fields("12 (sh) T 7") == ("T", 7)
    assert (
        process.stat_fields("12 (sh) T x")
        is process.stat_fields("12 (sh) T")
        is process.stat_fields("12 gone")
        is None
    )


def test_a_process_has_a_parent_and_a_start() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    child = subprocess.Popen(["sleep", "60"])
    started, after = process.start_time(child.pid), time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before * ticks - 2 <= started <= after * ticks + 2
    assert process.parent(child.pid) == os.getpid()
    child.kill()
    assert _becomes(child.pid, "Z")
    assert (process.start_time(child.pid), process.parent(child.pid)) == (0, os.getpid())
    child.wait()
    assert (process.start_time(child.pid), process.parent(child.pid)) == (0, 0)


def test_children_and_their_command_lines() -> None:
    child = subprocess.Popen(["sleep", "60"])
    assert process.children(os.getpid())[child.pid] in "SRD"
    assert process.command(child.pid) == "sleep 60"
    child.kill()
    child.wait()
    assert process.children(child.pid) == {}
    assert process.command(child.pid) == ""
    assert not process.has_no_variables(child.pid)


def test_siblings_are_those_of_the_same_parent() -> None:
    code = (
        "import sys; from busbw.host import process; sys.stdin.readline();"
        " print(*process.siblings())"
    )
    argv = [sys.executable, "-c", code]
    asking = subprocess.Popen(
        argv, env={"PYTHONPATH": SOURCE}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with subprocess.Popen(["sleep", "60"]) as other, asking:
        out, _ = asking.communicate("\n", timeout=20)
        other.kill()
    pids = set(map(int, out.split()))
    assert other.pid in pids
    assert not pids & {asking.pid, os.getpid()}


def test_a_watched_process_is_reported_when_it_ends() -> None:
    child = subprocess.Popen(["sleep", "60"])
    descriptor = process.watch(child.pid)
    assert descriptor is not None
    assert not select.select([descriptor], [], [], 0)[0]
    child.kill()
    assert select.select([descriptor], [], [], 5)[0]
    os.close(descriptor)
    child.wait()
    assert process.watch(child.pid) is None


def test_a_child_ends_with_its_parent_even_when_it_is_stopped() -> None:
    rank = (
        "import time; from busbw.host import process; process.die_with_parent(); print('up',"
        " flush=True); time.sleep(60)"
    )
    parent = (
        "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', sys.argv[1]],"
        " stdout=subprocess.PIPE);c.stdout.readline(); print(c.pid, flush=True); c.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, rank],
        env={"PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        child = int(launcher.stdout.readline())
        os.kill(child, signal.SIGSTOP)
        launcher.kill()
    end = time.monotonic() + 5
    while process.state(child) not in process.ENDED and time.monotonic() < end:
        time.sleep(0.01)
    assert process.state(child) in process.ENDED


def stat(*, start_code: str = "4096", env: tuple[str, str] = ("77", "77"), fields: int = 52) -> str:
    """A line of /proc/PID/stat with so many fields after the process's name."""
    stat_fields = ["0"] * fields
    stat_fields[0], stat_fields[23], stat_fields[47:49] = "S", start_code, env
    return f"5 (a name) {' '.join(stat_fields[:fields])}\n"


@pytest.mark.parametrize(
    ("line", "has_none"),
    [
        (stat(), True),
        (stat(fields=49), True),  # the fewest that have both ends of the environment
        (stat()[: stat().rindex("77")], False),
        (stat(env=("77", "99")), False),
        (stat(start_code="0"), False),  # the kernel sets it last
        ("", False),
    ],
)
def test_a_process_without_variables_has_an_empty_environment(
    line: str, has_none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "read_proc", lambda pid, file: line)
    assert process.has_no_variables(5) is has_none
