"""How a job runs and ends: what its launcher writes, reasons to stop it, and signals."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from busbw.core.errors import NoMeasurement
from busbw.launch import job, signal_handlers
from busbw.launch.cleanup import Cleanup
from busbw.launch.signal_handlers import terminable

NUMBERS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """The default action, also where the tests run under nohup, which ignores SIGHUP."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_ends_the_job_and_later_ones_are_ignored(number: signal.Signals) -> None:
    with pytest.raises(SystemExit) as ended, terminable():
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_signal_that_was_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with terminable():
        os.kill(os.getpid(), signal.SIGHUP)


def test_a_signal_while_the_handlers_are_put_back_changes_nothing() -> None:
    with terminable():
        handler = signal.getsignal(signal.SIGTERM)
    assert callable(handler)
    assert handler(signal.SIGTERM, None) is None


def launch(
    script: str, limit_s: float = 60.0, **given: Any
) -> tuple[int, list[bytes], list[bytes]]:
    """The exit code of a shell as the launcher, its events and its other lines."""
    lines: list[bytes] = []
    talk: list[bytes] = []
    environment = {"PATH": os.environ["PATH"]}
    code = job.run(["sh", "-c", script], environment, lines.append, talk.append, limit_s, **given)
    return code, lines, talk


def test_events_and_other_lines_of_a_launcher() -> None:
    script = "printf '{\"a\": '; printf '1}\\nlost daemon\\n{\"b\"'; printf 'end' >&2; exit 3"
    code, lines, talk = launch(script)
    assert (code, lines, sorted(talk)) == (3, [b'{"a": 1}', b'{"b"'], [b"end", b"lost daemon"])
    assert launch("kill -9 $$") == (-signal.SIGKILL, [], [])


def test_a_process_that_the_launcher_leaves_is_ended() -> None:
    cleanup = Cleanup("left-behind")
    _, lines, _ = launch("sleep 600 >&- 2>&- & echo {$BUSBW_JOB", cleanup=cleanup)
    assert lines == [b"{left-behind"] and cleanup.pids() == []


def test_a_launcher_in_which_no_rank_reports() -> None:
    with pytest.raises(NoMeasurement, match=r"no rank reported within 0.1 s of starting sh\n"):
        launch("exec sleep 600", 0.1)
    with pytest.raises(NoMeasurement, match="of starting sh on h1, h2: a host does not respond"):
        launch("exec sleep 600", 0.1, hosts=["h1", "h2"])
    better = NoMeasurement("a better reason", "hint")
    with pytest.raises(NoMeasurement, match="a better reason"):
        launch("exec sleep 600", 0.1, why_silent=lambda: better)
    asked = iter([True] * 3)
    with pytest.raises(NoMeasurement):
        launch("exec sleep 600", 0.1, queued=lambda: next(asked, False))
    assert next(asked, None) is None  # the time in the queue did not count


def test_a_rank_that_reports_in_another_way_is_heard() -> None:
    heard: list[bool] = []
    script = "sleep 0.1; exit 4"
    code, _, _ = launch(script, 0.05, heard=lambda: heard.append(True) is None)
    assert code == 4 and heard


def test_a_reason_to_stop_ends_the_job_here_and_elsewhere() -> None:
    ended: list[str] = []
    with pytest.raises(NoMeasurement, match="a rank died"):
        launch(
            "trap 'echo {last; exit' TERM; echo {; while :; do sleep 0.01; done",
            stop_reason=lambda: NoMeasurement("a rank died", "hint"),
            end_elsewhere=lambda: ended.append("elsewhere"),
        )
    assert ended == ["elsewhere"]


def test_an_error_in_what_takes_a_line_ends_the_job() -> None:
    cleanup, taken = Cleanup("fails"), list[bytes]()

    def take(line: bytes) -> None:
        taken.append(line)
        raise ValueError("the disk is full")

    script = "trap 'echo {last; exit' TERM; echo {first; while :; do sleep 0.01; done"
    with pytest.raises(ValueError, match="full"):
        job.run(
            ["sh", "-c", script], {"PATH": os.environ["PATH"]}, take, take, 60.0, cleanup=cleanup
        )
    assert taken[0] == b"{first" and b"{last" in taken and cleanup.pids() == []


def test_a_launcher_that_is_not_there() -> None:
    with pytest.raises(NoMeasurement, match="/no/mpirun cannot be run: No such file"):
        job.run(["/no/mpirun"], {}, print, print, 60.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_rows_are_taken_loses_none(number: signal.Signals) -> None:
    taken: list[bytes] = []

    def take(line: bytes) -> None:
        if not taken:
            os.kill(os.getpid(), number)
        taken.append(line)

    script = "printf '{1\\n{2\\n{3\\n'; exec sleep 600"
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        job.run(["sh", "-c", script], {"PATH": os.environ["PATH"]}, take, take, 60.0)
    assert taken == [b"{1", b"{2", b"{3"]


def test_a_signal_ends_what_takes_a_row_and_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_handlers, "_DEFERRED_S", 0.05)
    waiting = threading.Event()

    @signal_handlers.defers_signals
    def hang() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        waiting.wait(60)

    with pytest.raises(KeyboardInterrupt), terminable():
        hang()
