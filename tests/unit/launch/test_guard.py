"""A process that is killed cannot clean up: its guard does."""

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.host import process
from busbw.launch import cleanup, job
from busbw.launch.cleanup import Cleanup, Guard, new_mark


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def in_another_process(work: Callable[[int], object]) -> tuple[int, int]:
    """The process, a group of its own, and the number that `work` writes to its pipe."""
    answer, told = os.pipe()
    measuring = os.fork()
    if measuring == 0:
        try:
            os.setpgid(0, 0)
            work(told)
        finally:
            os._exit(1)
    number = int(os.read(answer, 20))
    os.close(answer)
    os.close(told)
    return measuring, number


@pytest.mark.parametrize("program", ["", "sleep"])
def test_a_guard_removes_the_records_of_a_killed_process(tmp_path: Path, program: str) -> None:
    folder = tmp_path / "prted.4711"
    folder.mkdir()

    def measure(told: int) -> None:
        started = Cleanup(new_mark())
        guard = Guard(started)
        started.record_folder(str(folder))
        os.write(told, f"{guard._pid}\n".encode())
        if program:
            guard.survive_exec()
            os.execvp(program, [program, "600"])
        signal.pause()

    measuring, guard_pid = in_another_process(measure)
    guard = os.pidfd_open(guard_pid)
    # Whoever reads this process's output sees its end: the guard keeps nothing open but its pipe.
    wait_for(lambda: [file.name for file in Path(f"/proc/{guard_pid}/fd").iterdir()] == ["0"])
    wait_for(lambda: not program or process.name(measuring) == program)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(guard_pid, number)
    assert not select.select([guard], [], [], 0.05)[0], "the guard has ended too early"
    assert folder.exists()
    os.killpg(measuring, signal.SIGKILL)
    os.waitpid(measuring, 0)
    assert select.select([guard], [], [], 30)[0], "the guard has not ended"
    assert not folder.exists()
    os.close(guard)


@pytest.mark.parametrize(
    ("on_sigterm", "limit_s", "ends_itself"),
    [("sleep 0.05; echo talk; echo >done; exit", 600.0, True), ("", 0.01, False)],
    ids=["a launcher that ends its ranks", "a launcher that ignores SIGTERM"],
)
def test_a_launcher_has_time_to_end_when_the_process_that_started_it_is_killed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    on_sigterm: str,
    limit_s: float,
    ends_itself: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cleanup, "LAUNCHER_S", limit_s)
    script = f"trap '{on_sigterm}' TERM; echo {{$$; while :; do sleep 0.01; done"

    def measure(told: int) -> None:
        def take(line: bytes) -> None:
            os.write(told, line[1:])

        job.run(["sh", "-c", script], {"PATH": os.environ["PATH"]}, take, take, 0.0)

    measuring, launcher_pid = in_another_process(measure)
    launcher = os.pidfd_open(launcher_pid)
    os.kill(measuring, signal.SIGKILL)
    os.waitpid(measuring, 0)
    assert select.select([launcher], [], [], 30)[0], "the launcher is left"
    assert Path("done").exists() == ends_itself
    os.close(launcher)


def test_a_job_continues_without_its_guard(tmp_path: Path) -> None:
    folder = tmp_path / "prted.4711"
    folder.mkdir()
    started = Cleanup(new_mark())
    guard = Guard(started)
    os.kill(guard._pid, signal.SIGKILL)
    os.waitid(os.P_PID, guard._pid, os.WEXITED | os.WNOWAIT)
    started.record_folder(str(folder))
    started.kill_remaining()
    guard.dismiss()
    assert not folder.exists()
