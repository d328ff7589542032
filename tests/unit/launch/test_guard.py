"""A process that is killed cannot clean up: its guard does."""

import os
import select
import signal

from busbw.launch.cleanup import Cleanup, Guard, new_mark


def test_a_guard_removes_the_records_of_a_killed_process(tmp_path):
    folder = tmp_path / "prted.4711"
    folder.mkdir()
    guard_pid, guard_input = os.pipe()
    measuring = os.fork()
    if measuring == 0:
        job = Cleanup(new_mark())
        guard = Guard(job)
        job.record_folder(str(folder))
        os.write(guard_input, f"{guard._pid}\n".encode())
        signal.pause()
    guard = os.pidfd_open(int(os.read(guard_pid, 20)))
    os.kill(measuring, signal.SIGKILL)
    os.waitpid(measuring, 0)
    assert select.select([guard], [], [], 30)[0], "the guard has not ended"
    assert not folder.exists()
    os.close(guard)


def test_a_job_continues_without_its_guard(tmp_path):
    folder = tmp_path / "prted.4711"
    folder.mkdir()
    job = Cleanup(new_mark())
    guard = Guard(job)
    os.kill(guard._pid, signal.SIGKILL)
    os.waitid(os.P_PID, guard._pid, os.WEXITED | os.WNOWAIT)
    job.record_folder(str(folder))
    job.kill_remaining()
    guard.dismiss()
    assert not folder.exists()
