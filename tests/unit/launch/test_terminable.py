"""How a job runs and ends: what its launcher writes, reasons to stop it, and signals."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from busbw.core.errors import NoMeasurement, TimedOut
from busbw.host import process
from busbw.launch import job, signal_handlers
from busbw.launch.cleanup import Cleanup
from busbw.launch.signal_handlers import terminable

NUMBERS = (signal.SIGTERM, signal.SIGHUP)
ENVIRONMENT = {"PATH": os.environ["PATH"]}
WORK = "while :; do sleep 0.01; done"


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
    code = job.run(["sh", "-c", script], ENVIRONMENT, lines.append, talk.append, limit_s, **given)
    return code, lines, talk


def test_events_and_other_lines_of_a_launcher() -> None:
    script = "printf '{\"a\": '; printf '1}\\nlost daemon\\n{\"b\"'; printf 'end' >&2; exit 3"
    code, lines, talk = launch(script)
    assert (code, lines, sorted(talk)) == (3, [b'{"a": 1}', b'{"b"'], [b"end", b"lost daemon"])
    assert launch("kill -9 $$") == (-signal.SIGKILL, [], [])


@pytest.mark.parametrize("closes", [">&- 2>&-", ""])
def test_a_process_that_the_launcher_leaves_is_ended(
    monkeypatch: pytest.MonkeyPatch, closes: str
) -> None:
    monkeypatch.setattr(job, "DRAIN_LIMIT_S", 0.01)
    cleanup = Cleanup("left-behind")
    _, lines, _ = launch(f"sleep 600 {closes} & echo {{$BUSBW_JOB", cleanup=cleanup)
    assert lines == [b"{left-behind"] and cleanup.pids() == []


@pytest.mark.parametrize("report", ["echo {; ", ""], ids=["by its report", "in silence"])
def test_the_network_of_a_launcher_that_is_ended_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    def network(pid: int | str) -> str:
        return "of this process" if pid in ("self", os.getpid()) else "of the launcher"

    def end(_: bytes = b"") -> None:
        if Path("left").exists():
            process.kill(cleanup.launcher)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("busbw.launch.cleanup._network", network)
    cleanup = Cleanup("left-in-a-network")
    script = f"sleep 600 >&- 2>&- & echo $! >new; mv new left; {report}wait"
    given: dict[str, Any] = {} if report else {"stop_reason": end}
    command = ["sh", "-c", script]
    code = job.run(command, ENVIRONMENT, end, end, 60.0, cleanup=cleanup, **given)
    assert code == -signal.SIGKILL
    assert process.state(int(Path("left").read_text())) in process.ENDED


def test_what_is_written_when_the_launcher_has_ended_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "DRAIN_LIMIT_S", 60.0)
    monkeypatch.chdir(tmp_path)
    lines: list[bytes] = []

    def take(line: bytes) -> None:
        lines.append(line)
        Path(line[1:].decode()).touch()

    until_ended = "while kill -0 $$ 2>/dev/null; do sleep 0.01; done"
    until_taken = "while [ ! -e 2 ]; do sleep 0.01; done"
    script = f"({until_ended}; echo {{2; {until_taken}; echo {{3) & echo {{1"
    assert job.run(["sh", "-c", script], ENVIRONMENT, take, take, 60.0) == 0
    assert lines == [b"{1", b"{2", b"{3"]


def test_a_launcher_that_closes_its_output_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "END_LIMIT_S", 0.01)
    with pytest.raises(
        TimedOut, match=r"^the launcher closed its output but did not exit within 0\.01 s"
    ):
        launch("exec >&- 2>&-; exec sleep 600")


def test_a_job_leaves_no_process_and_no_open_file() -> None:
    def left() -> tuple[int, set[int]]:
        return len([*Path("/proc/self/fd").iterdir()]), set(process.children(os.getpid()))

    launch("exit 0")  # which may start threads
    before = left()
    launch("exit 0")
    stop(f"trap 'exit' TERM; echo {{; {WORK}")
    assert left() == before


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
        launch("exec sleep 600", 0.1, is_queued=lambda: next(asked, False))
    assert next(asked, None) is None  # the time in the queue did not count


def test_one_report_in_either_way_ends_the_wait() -> None:
    taken: list[bytes] = []
    command = ["sh", "-c", "echo {; sleep 0.05; exit 4"]
    # the time until it writes does not count
    code = job.run(
        command, ENVIRONMENT, taken.append, taken.append, 1e-9, is_queued=lambda: not taken
    )
    assert (code, taken) == (4, [b"{"])
    answers = iter([False])  # it is heard when the limit is over
    code, _, _ = launch(
        "echo talk; sleep 0.05; exit 4", 1e-9, has_reported=lambda: next(answers, True)
    )
    assert code == 4 and next(answers, None) is None


def stop(script: str, lines: list[bytes] | None = None, **given: Any) -> None:
    """Run a shell as the launcher until its first event, or until `when` of it, and end the job."""
    taken = [] if lines is None else lines
    cleanup = given.setdefault("cleanup", Cleanup(f"stopped-{os.getpid()}"))
    when = given.pop("when", lambda _: bool(taken))

    def reason() -> NoMeasurement | None:
        return NoMeasurement("a rank died", "hint") if when(cleanup.launcher) else None

    with pytest.raises(NoMeasurement, match="a rank died"):
        job.run(
            ["sh", "-c", script],
            ENVIRONMENT,
            taken.append,
            lambda _: None,
            60.0,
            stop_reason=reason,
            **given,
        )
    assert process.state(cleanup.launcher) in process.ENDED and cleanup.pids() == []


def test_a_reason_to_stop_ends_the_job_here_and_then_elsewhere() -> None:
    lines, elsewhere = list[bytes](), list[bytes]()
    stop(
        f"trap 'echo {{last; exit' TERM; echo {{; {WORK}",
        lines,
        end_elsewhere=lambda: elsewhere.extend(lines),
    )
    assert elsewhere == [b"{", b"{last"]


def test_a_launcher_that_alone_can_end_the_ranks_of_other_hosts_has_time_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "GRACE_S", 0.01)
    monkeypatch.chdir(tmp_path)
    lines: list[bytes] = []
    last = "sleep 0.05; echo {last; exec >&- 2>&-; sleep 0.05; echo >done; exit"
    stop(f"trap '{last}' TERM; echo {{; {WORK}", lines)
    assert lines == [b"{", b"{last"] and Path("done").exists()


def test_a_launcher_that_was_stopped_is_resumed_to_end_its_ranks() -> None:
    lines: list[bytes] = []
    stop(
        f"trap 'echo {{last; exit' TERM; kill -STOP $$; {WORK}",
        lines,
        when=lambda launcher: process.state(launcher) in process.STOPPED,
    )
    assert lines == [b"{last"]


def test_a_launcher_that_ignores_sigterm_and_cannot_be_told_by_its_variables_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "GRACE_S", 0.01)
    monkeypatch.setattr(job, "TERM_LIMIT_S", 0.02)
    stop(
        "trap '' TERM; exec env -i sleep 600", when=lambda pid: process.command(pid) == "sleep 600"
    )


def test_shared_memory_of_ranks_that_the_launcher_ends_is_removed() -> None:
    segment = Path(f"/dev/shm/nccl-busbw-stopped-{os.getpid()}")
    code = (
        f"import mmap, time; file = open('{segment}', 'wb+'); file.truncate(1);"
        " kept = mmap.mmap(file.fileno(), 1); print('{', flush=True); time.sleep(600)"
    )
    try:
        stop(f'exec {sys.executable} -S -c "{code}"')
        assert not segment.exists()
    finally:
        segment.unlink(missing_ok=True)


def test_an_error_in_what_takes_a_line_ends_the_job() -> None:
    cleanup, taken = Cleanup("fails"), list[bytes]()

    def take(line: bytes) -> None:
        taken.append(line)
        raise ValueError("the disk is full")

    script = "trap 'echo {last; exit' TERM; echo {first; while :; do sleep 0.01; done"
    with pytest.raises(ValueError, match="full"):
        job.run(["sh", "-c", script], ENVIRONMENT, take, take, 60.0, cleanup=cleanup)
    assert taken[0] == b"{first" and b"{last" in taken and cleanup.pids() == []


def test_a_launcher_that_is_not_there() -> None:
    with pytest.raises(NoMeasurement, match=r"^/no/mpirun cannot be run: No such file"):
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
        job.run(["sh", "-c", script], ENVIRONMENT, take, take, 60.0)
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
