"""Answers of this machine's operating system."""

import ctypes
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from busbw.host import d_state, os_queries
from busbw.host.d_state import still_waiting, stuck_processes, waits_so_far
from busbw.host.os_queries import accessible, allowed_cpus, clock, space
from busbw.host.process import state
from busbw.host.source import Unavailable

# clone(2) with CLONE_VFORK: the parent waits in state D until its child ends.
CLONE = {"x86_64": 56, "aarch64": 220}
WAIT = (
    "import ctypes, time; print(flush=True); ctypes.CDLL(None).syscall({call}, 0x4000 | 17, 0, 0,"
    " 0, 0) or time.sleep(60)"
)


def test_space_of_a_file_system(tmp_path):
    size = json.loads(space(str(tmp_path)))
    usage = shutil.disk_usage(tmp_path)
    assert size["total"] == usage.total and size["free"] == pytest.approx(usage.free, rel=0.5)
    with pytest.raises(Unavailable, match="/not/there: no such file or directory"):
        space("/not/there")


def test_access_to_the_files_of_a_directory(tmp_path):
    (tmp_path / "open").write_text("")
    assert json.loads(accessible(str(tmp_path))) == {"open": True}
    assert accessible("/not/there") == "{}"
    with pytest.raises(Unavailable, match="not a directory"):
        accessible(str(tmp_path / "open"))


def test_cpus_of_this_process():
    all_cpus = os.sched_getaffinity(0)
    assert set(json.loads(allowed_cpus())) == all_cpus
    os.sched_setaffinity(0, {max(all_cpus)})
    try:
        assert json.loads(allowed_cpus()) == [max(all_cpus)]
    finally:
        os.sched_setaffinity(0, all_cpus)


def test_state_of_the_clock():
    state = json.loads(clock())
    assert isinstance(state["synchronized"], bool) and state["error_us"] >= 0


@pytest.mark.parametrize(
    ("code", "status", "synchronized"),
    [(0, 0x2001, True), (5, 0x2041, False), (5, 0x40, False), (-1, 0, None)],
)
def test_status_of_the_clock(monkeypatch, code, status, synchronized):
    def adjtimex(state):
        state._obj.status, state._obj.esterror = status, 7
        ctypes.set_errno(1)
        return code

    monkeypatch.setattr(
        os_queries.ctypes,
        "CDLL",
        lambda name, use_errno: SimpleNamespace(adjtimex=adjtimex) if use_errno else None,
    )
    if synchronized is None:
        with pytest.raises(Unavailable, match="adjtimex: operation not permitted"):
            clock()
    else:
        assert json.loads(clock()) == {"synchronized": synchronized, "error_us": 7}


@pytest.mark.skipif(
    platform.machine() not in CLONE, reason="the number of clone(2) is not known here"
)
def test_process_that_waits_in_the_kernel_is_found():
    program = WAIT.format(call=CLONE[platform.machine()])
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        process.stdout.readline()
        until = time.monotonic() + 20
        while state(process.pid) != "D" and time.monotonic() < until:
            time.sleep(0.01)
        assert process.pid in [pid for pid, *_ in json.loads(stuck_processes())]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)
        process.stdout.close()
    assert process.pid not in [pid for pid, *_ in json.loads(stuck_processes())]


def test_busy_process_is_in_another_wait_at_each_sample():
    find, hung = [(7, "1200"), (9, "33")], [(7, "1250"), (9, "33")]
    assert still_waiting(find, hung) == [(9, "33")]
    assert (
        waits_so_far("Name:\tfind\nvoluntary_ctxt_switches:\t1200\nnonvoluntary_ctxt_switches:\t7")
        == "1200"
    )
    assert waits_so_far("Name:\tfind") == ""


def test_threads_of_the_kernel_are_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of kthreadd (pid 2) wait in state D all the time."""
    lines = {3: "3 (kworker) D 2 0", 4: "4 (cat) D 3 0", 5: "5 (sleep) S 1 0"}
    monkeypatch.setattr(
        d_state,
        "read_proc",
        lambda pid, file: (
            f"{lines[pid]} {'0 ' * 40}" if file == "stat" else "voluntary_ctxt_switches:\t9"
        ),
    )
    assert d_state._waiting([3, 4, 5]) == [(4, "9")]
