"""Asking hosts for the processes of a job and ending them, with scripts as launch agents and
real processes in place of ranks.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from busbw.check.doctor.networks import LaunchContext
from busbw.core.rank_messages import Here
from busbw.launch import on_host, remote, survey
from busbw.launch.cleanup import FOLDER, MARKER, Cleanup
from busbw.launch.hosts import LaunchHost
from busbw.launch.on_host import JobRequest

Agent = Callable[[str], None]
MINE, OTHERS = f"mine{os.getpid()}", f"others{os.getpid()}"


@pytest.fixture
def agent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Replaces the agent by a script: $1 is the host, and the command for that host's login
    shell follows.
    """

    def write_agent(script: str) -> None:
        file = tmp_path / "agent"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", str(file))

    return write_agent


@contextlib.contextmanager
def rank(marker: str, number: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a rank which Open MPI started, and has not reported anything."""
    environ = {
        MARKER: marker,
        "OMPI_COMM_WORLD_RANK": str(number),
        "OMPI_COMM_WORLD_SIZE": "2",
        FOLDER: str(folder),
    }
    with subprocess.Popen(
        [on_host.RANK_PROGRAM, "60"], executable="/bin/sleep", env=environ
    ) as process:
        while (
            on_host.RANK_PROGRAM.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        ):
            time.sleep(0.001)
        try:
            yield process
        finally:
            process.kill()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_a_stopped_rank_is_found_on_its_host_before_it_reports_and_its_job_is_ended_there(
    agent_does: Agent, tmp_path: Path
) -> None:
    agent_does('shift; exec sh -c "$*"')
    own_folder, other_folder = tmp_path / "prted.1", tmp_path / "prted.2"
    for folder in (own_folder, other_folder):
        folder.mkdir()
    job, hosts = Cleanup(MINE), ("h2", "h2")
    with rank(MINE, 1, own_folder) as mine_process, rank(OTHERS, 1, other_folder) as other:
        stop(mine_process)
        answers = survey.survey(job, {0: Here(0, "h2", os.getpid())}, {}, hosts, 20)
        assert answers.unreported == {1: Here(1, os.uname().nodename, mine_process.pid)}
        assert answers.states.keys() == {0, 1}
        assert answers.states[0] in ("R", "S")
        assert answers.states[1] == "T"
        survey.end(job, {}, hosts, set(), 20)
        assert mine_process.wait(5) == -signal.SIGKILL
        assert other.poll() is None
        assert not own_folder.exists()
        assert other_folder.exists()


def test_a_stopped_launcher_is_a_helper_and_no_rank() -> None:
    with subprocess.Popen(
        ["prterun", "60"], executable="/bin/sleep", env={MARKER: MINE}
    ) as launcher:
        try:
            stop(launcher)
            (helper,) = survey.survey(Cleanup(MINE, launcher.pid), {}, {}, (), 30).helpers
        finally:
            launcher.kill()
    assert str(helper) == f"sleep on {os.uname().nodename} (pid {launcher.pid})"


@pytest.mark.parametrize(
    ("script", "unreachable", "limit_s"),
    [
        ("exit 255", {"h1"}, 30),
        ("exec sleep 60", {"h1"}, 0.5),
        ("exit 1", set(), 30),
        ("exit 127", set(), 30),
        ("echo hello", set(), 30),
    ],
    ids=["ssh gives up", "no answer", "an error there", "no shell there", "not an answer"],
)
def test_only_silence_or_ssh_failure_mean_unreachable(
    agent_does: Agent, script: str, unreachable: set[str], limit_s: float
) -> None:
    agent_does(script)
    answers = on_host.ask_hosts({"h1": JobRequest("none")}, limit_s)
    assert (answers.states, answers.unreachable) == ({}, unreachable)


def surveyed(hosts: list[str]) -> bool:
    answers = on_host.ask_hosts({host: JobRequest("none") for host in hosts}, 30)
    return answers.states.keys() == set(hosts)


def examined(hosts: list[str]) -> bool:
    results = LaunchContext(tuple(map(LaunchHost, hosts)), 30).on_each(
        ["true"], dict.fromkeys(hosts, b"")
    )
    return all(result.code == 0 for result in results)


@pytest.mark.parametrize("query", [surveyed, examined])
def test_hosts_that_share_a_limit_are_asked_at_the_same_time(
    query: Callable[[list[str]], bool],
    agent_does: Agent,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "MAX_AGENTS", 1)
    agent_does(
        f"touch {tmp_path}/asked.$1; until [ -e {tmp_path}/asked.h3 ]; do sleep 0.02; done; shift;"
        ' exec sh -c "$*"'
    )
    assert query(["h1", "h2", "h3"])


def test_a_missing_agent_gives_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", "/no/such/agent")
    assert on_host.ask_hosts({"h1": JobRequest("none")}, 30) == on_host.HostAnswers({})


def test_hosts_that_did_not_answer_are_not_asked_to_end_a_job(
    agent_does: Agent, tmp_path: Path
) -> None:
    agent_does(f'cat >{tmp_path}/"$1"')
    started = {1: Here(1, "h3", 5, folder="/tmp/prted.5"), 9: Here(9, "h3", 6)}  # 9: of no host
    survey.end(Cleanup(MINE), started, ("h1", "h3", "h2", "localhost"), {"h2"}, 5)
    requests = {file.name: file.read_text() for file in tmp_path.glob("h?")}
    assert sorted(requests) == ["h1", "h3"]
    assert ["/tmp/prted.5" in requests[host] for host in ("h1", "h3")] == [False, True]


@pytest.mark.parametrize("name", ["etc", "prted.x", "ompi.", "..", "prted.1/x"])
def test_only_directories_of_open_mpi_are_removed(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True, exist_ok=True)
    job = Cleanup(MINE)
    job.record_folder(str(folder))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "prted.5").symlink_to(tmp_path / "elsewhere")
    job.record_folder(str(tmp_path / "prted.5"))
    job.kill_remaining()
    assert folder.exists()
    assert (tmp_path / "elsewhere").exists()


def test_the_directory_of_all_jobs_of_a_host_goes_with_its_last_one(tmp_path: Path) -> None:
    """Of Open MPI 4."""
    first, second = (tmp_path / "ompi.h1.0" / f"pid.{number}" for number in (7, 8))
    for folder in (first, second):
        (folder / "0").mkdir(parents=True)
    for folder, remaining in ((first, {second}), (second, set())):
        job = Cleanup(MINE)
        job.record_folder(str(folder))
        job.kill_remaining()
        assert set(tmp_path.glob("ompi*/*")) == remaining
    assert not list(tmp_path.iterdir())


def test_only_ranks_that_have_ended_are_looked_up_in_the_kernel_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    monkeypatch.setattr(on_host.kernel_log, "killed", lambda _pid: True)
    request = JobRequest("none", pids=[os.getpid(), ended.pid])
    assert on_host.examine(request).killed == [ended.pid]


def test_limits_of_a_user_are_stated_with_their_values() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
        resource.setrlimit(resource.RLIMIT_CPU, (50, 50))

    program = "from busbw.launch import on_host; print('; '.join(on_host.list_limits()))"
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "a file may have 2 MiB at most (ulimit -f); a process may use 50 s of CPU time (ulimit -t)"
    )
