"""The process that ended first is identified even if others follow immediately."""

import subprocess
import sys
import time

from busbw.launch.exit_watcher import ExitWatcher


def test_ranks_are_listed_in_the_order_in_which_they_ended() -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(3)
    ]
    watcher = ExitWatcher()
    for rank, process in enumerate(processes):
        watcher.watch(rank, process.pid)
    for rank in (1, 2, 0):
        processes[rank].kill()
        processes[rank].wait()
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    deadline = time.monotonic() + 5
    while len(watcher.order) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert watcher.order == [1, 2, 0]


def test_a_process_that_ended_before_is_not_watched() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    watcher = ExitWatcher()
    watcher.watch(0, process.pid)
    time.sleep(0.05)
    assert watcher.order == []
