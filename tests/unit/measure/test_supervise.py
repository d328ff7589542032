"""The error of a launched job, with real processes in place of the launcher: the cause comes
before its consequences.
"""

import contextlib
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest

from busbw.cli.output import SweepOutput
from busbw.core.errors import BusbwError, NoMeasurement, StartFailed
from busbw.core.rank_messages import Gone, Here, Report, Stalled, encode
from busbw.core.result import EngineLibrary, Result
from busbw.core.sweep import SweepSpec
from busbw.launch.launcher_noise import FRAME_LINES, Framing
from busbw.launch.rank_monitor import PROGRAM
from busbw.measure import supervise
from busbw.measure.events import Ended, Event, Started
from busbw.measure.events import encode as event
from busbw.measure.job import SweepJob
from busbw.measure.launch_plan import LauncherCommand
from busbw.measure.rank_failure import FAILED_PREFIX, Failed, RankFailed
from busbw.measure.record import RunRecord
from busbw.measure.supervise import Follower, launch
from busbw.measure.target import LaunchTarget
from busbw.report.registry import view

SPEC = SweepSpec(collective="all_reduce")
HERE = [Here(rank, "h1", 4000000 + rank) for rank in range(2)]  # above any process number
DIED = "process rank 1 with PID 7 on node h1 exited on signal 9 (Killed)."


def output_line(report: Report | Failed | str) -> str:
    text = (
        report
        if isinstance(report, str)
        else (
            f"{FAILED_PREFIX}{msgspec.json.encode(report).decode()}"
            if isinstance(report, Failed)
            else encode(report)
        )
    )
    return f"echo {shlex.quote(text)} >&2; sleep 0.02"


class Acknowledging(SweepOutput):
    """Creates the file `acknowledged` when the start event arrives: stdout and stderr are two pipes,
    which have no common order.
    """

    def __init__(self, acknowledged: Path) -> None:
        super().__init__(RunRecord(), view("csv"))
        self.acknowledged = acknowledged

    def take(self, event: Event) -> None:
        super().take(event)
        self.acknowledged.touch()


def ended(*reports: Report | Failed | str, status: int = 3, then_command: str = "") -> BusbwError:
    work = SweepJob(sweep=SPEC, engine="mpi", ranks=2, limit_s=1.0, launch_limit_s=5.0)
    with tempfile.TemporaryDirectory() as folder, pytest.raises(BusbwError) as caught:
        acknowledged = Path(folder, "acknowledged")
        started = (
            f"echo {shlex.quote(event(Started(Result(SPEC))).decode().strip())}; until [ -e {acknowledged}"
            " ]; do sleep 0.01; done"
        )
        script = "; ".join(
            [
                *map(output_line, HERE),
                started,
                *map(output_line, reports),
                then_command or ":",
                f"exit {status}",
            ]
        )
        Follower(LauncherCommand(argv=[], job=work), Acknowledging(acknowledged)).follow(
            ["sh", "-c", script], 10
        )
    return caught.value


def test_a_signal_outranks_errors_of_broken_connections() -> None:
    error = ended(Failed("MPI_Allreduce: connection reset", "", 3, 0, "h1"), DIED, status=137)
    assert error.message == "rank 1 on host h1 died of signal 9 (SIGKILL), before the first row"


@pytest.mark.parametrize(
    ("status", "how"), [(137, "died of signal 9 (SIGKILL)"), (255, "exited with 255")]
)
def test_a_launchers_status_is_a_signal_only_if_there_is_such_a_signal(
    status: int, how: str
) -> None:
    """Open MPI 4 exits with 255 after a rank that gave up."""
    with subprocess.Popen(["sh", "-c", "read held", PROGRAM], stdin=subprocess.PIPE) as rank:
        own_process = Here(2, os.uname().nodename, rank.pid)
        error = ended(
            own_process, then_command=f"sleep 0.3; kill -9 {rank.pid}; sleep 0.3", status=status
        )
    assert how in error.message


def test_a_failing_rank_is_named_before_reports_of_its_end() -> None:
    error = ended(Failed("no GPU", "look", 3, 1, "h1"), Gone(0, "h1", HERE[1].pid))
    assert isinstance(error, RankFailed)
    assert error.message == "rank 1 on h1: no GPU"


def test_a_rank_that_ended_before_another_failed_is_the_cause() -> None:
    error = ended(
        Gone(0, "h1", HERE[1].pid), Failed("MPI_Allreduce: connection reset", "", 3, 0, "h1")
    )
    assert error.message.startswith("rank 1 on h1 (pid 4000001) exited without an error message")


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("", "the launcher exited with 1, without an error message"),
        ("mpirun detected that one or more processes exited with 1", "rank 1 on h1"),
    ],
)
def test_no_rank_is_named_where_mpirun_was_terminated(report: str, message: str) -> None:
    disconnected = "An MPI communication peer process has unexpectedly disconnected."
    error = ended(Gone(0, "h1", HERE[1].pid), disconnected, report, status=1)
    assert error.message.startswith(message)


def test_ranks_that_quit_after_a_stall_are_explained() -> None:
    error = ended(
        Stalled(0, "h1", 1, "timing", "8", 4, 1.0), Stalled(1, "h1", 2, "verify", "8", 3, 1.0)
    )
    assert error.message.startswith("verify of 8 made no progress for 1 s: rank 1 on h1")


def test_a_launcher_that_hangs_after_a_failure_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("busbw.measure.supervise.ABORT_S", 0.3)
    error = ended(Failed("no GPU", "look", 3, 1, "h1"), then_command="sleep 600")
    assert error.message == "rank 1 on h1: no GPU"


def test_a_launcher_that_becomes_silent_is_ended() -> None:
    error = ended(then_command="sleep 600")
    assert isinstance(error, NoMeasurement)
    assert "no rank has reported for 5 s" in error.message


def test_exit_messages_are_hidden_and_mpi_errors_shown() -> None:
    lines = (
        "[h1:12] Delaying for 1 seconds before aborting",
        "[h1:00000] *** An error occurred in Socket closed",
        "[h1:00000] *** Unknown error",
        "[h2:00000] *** An error occurred in MPI_Allreduce",
        "busbw: hello",
        "-" * 74,
        "mpirun was unable",
        "-" * 74,
        "----- a rule of somebody else's",
        "----------------",
        "after it",
        "[h1:27631] 1 more process has sent help message help-mpi-api.txt / mpi-abort",
        (
            '[h1:27631] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error'
            " messages"
        ),
        (
            "[warn] Epoll MOD(1) on fd 21 failed. Old events were 6; read change was 0 (none);"
            " close change was 0 (none): Bad file descriptor"
        ),
    )
    framing = Framing()
    assert [line for line in lines if not framing(line)] == [
        "[h2:00000] *** An error occurred in MPI_Allreduce",
        *lines[4:5],
        *lines[8:11],
    ]


def test_an_unclosed_frame_hides_at_most_one_message() -> None:
    framing = Framing()
    unframed = [line for line in ["-" * 76, *map(str, range(100))] if not framing(line)]
    assert unframed == [str(number) for number in range(FRAME_LINES, 100)]


def test_waiting_for_nccl_ends_with_another_engine() -> None:
    follower = Follower(
        LauncherCommand(argv=[], job=SweepJob(sweep=SPEC, ranks=2)),
        SweepOutput(RunRecord(), view("csv")),
    )
    assert follower.monitor.library_reports
    for name, waited in (("mpi", False), ("nccl", True)):
        started = event(Started(Result(SPEC, library=EngineLibrary(name)))).decode().strip()
        with pytest.raises(BusbwError):  # the launcher ends without a result
            follower.follow(["echo", started], 10)
        assert follower.monitor.library_reports is waited


RACE = (
    "[h2:29498] Signal: Segmentation fault (11)\n"
    "[h2:29498] [ 1] libmpi.so.40(mca_pml_ob1_recv_frag_callback_match+0x95)\n"
    "[h2:29498] [ 9] libmpi.so.40(ompi_mpi_init+0x425)\n"
    "srun: error: h2: task 1: Segmentation fault"
)


@pytest.mark.parametrize("races", [1, 2])
def test_a_startup_race_of_mpi_is_retried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], races: int
) -> None:
    count = shlex.quote(str(tmp_path / "starts"))
    good = "; ".join(
        f"echo {shlex.quote(event(emitted).decode().strip())}"
        for emitted in (Started(Result(SPEC)), Ended("2026-11-23T12:00:00Z", {}))
    )
    script = (
        f"echo >> {count}; [ $(wc -l < {count}) -gt {races} ] && {{ {good}; exit 0; }}; echo"
        f" {shlex.quote(RACE)} >&2; exit 139"
    )
    output = SweepOutput(RunRecord(), view("csv"))
    job = SweepJob(sweep=SPEC, engine="mpi", ranks=2, launch_limit_s=5.0)
    prepared = LauncherCommand(argv=["sh", "-c", script], job=job)
    monkeypatch.setattr(supervise, "launcher_command", lambda *_: prepared)
    with contextlib.nullcontext() if races == 1 else pytest.raises(StartFailed):
        launch(job, LaunchTarget(), output)
    assert "a rank crashed in MPI_Init" in capsys.readouterr().err
    assert (tmp_path / "starts").read_text() == "\n\n"


@pytest.mark.parametrize(
    ("logged", "cause"),
    [
        (True, ": out of memory, so the kernel of that host killed it"),
        (None, ": perhaps out of memory, as the kernel of that host killed a process meanwhile"),
        (False, ""),  # the kernel killed another process
    ],
)
def test_a_rank_that_the_kernel_killed_for_memory_is_explained(
    logged: bool | None, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busbw.host.kernel_log.count", lambda: 5)
    monkeypatch.setattr("busbw.host.kernel_log.killed", lambda _: logged)
    rank_processes = [
        Here(rank, os.uname().nodename, 4000000 + rank, 4 + rank) for rank in range(2)
    ]
    killed = ended(*rank_processes, DIED.replace("rank 1", "rank 0"), status=137)
    assert killed.message.startswith(f"rank 0 on host h1 died of signal 9 (SIGKILL){cause}")
    assert ("out of memory, " in killed.message) == bool(cause)
    assert ("ulimit" in killed.hint) == bool(cause)
    unchanged_count = ended(*rank_processes, DIED, status=137).message
    assert ("out of memory" in unchanged_count) == bool(logged)
