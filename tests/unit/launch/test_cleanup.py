"""The processes of an aborted job are found by a variable in their environment."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from busbw.host import process
from busbw.launch import cleanup
from busbw.launch.cleanup import FOLDER, MARKER, Cleanup, end_job_here, temporary, variables


def test_a_process_is_found_at_any_moment_also_while_it_executes_another_program(
    tmp_path: Path,
) -> None:
    program = tmp_path / "again"
    # the kernel shows no environment for a part of this
    program.write_text('#!/bin/sh\nexec "$0"\n')
    program.chmod(0o755)
    job = Cleanup(f"again{os.getpid()}")
    with subprocess.Popen(
        [str(program)], env={MARKER: f"again{os.getpid()}", "PATH": os.environ["PATH"]}
    ) as child:
        try:
            assert [job.pids() for _ in range(100)] == [[child.pid]] * 100
        finally:
            child.kill()
    assert job.pids() == []


def test_a_process_without_variables_or_program_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cleanup, "EXEC_S", 3600.0)
    with subprocess.Popen(["sleep", "600"], env={}) as asleep:
        try:
            while not process.has_no_variables(asleep.pid):  # it still executes
                time.sleep(0.01)
            assert variables(asleep.pid) == {}
        finally:
            asleep.kill()
        os.waitid(os.P_PID, asleep.pid, os.WEXITED | os.WNOWAIT)
        assert variables(asleep.pid) == {}, "a zombie"


def test_a_process_that_executes_another_program_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = iter([b"", b"", b"A=1\0B=2=3\0"])
    monkeypatch.setattr(process, "read_memory_file", lambda *_: next(reads))
    assert variables(os.getpid()) == {"A": "1", "B": "2=3"}


def test_files_of_killed_ranks_are_removed_and_those_of_other_jobs_stay() -> None:
    own, other = (f"/dev/shm/sm_segment.busbw-test-{os.getpid()}.0.{job}" for job in "12")
    nccl = f"/dev/shm/nccl-busbw-test-{os.getpid()}"
    files = [Path(name) for name in (f"{own}.0", f"{own}.1", nccl, f"{other}.0", f"{nccl}0")]
    told: list[str] = []
    job = Cleanup("a job without processes")
    job.on_record = told.append
    try:
        for file in files:
            file.write_bytes(b"0")
        for name in (f"{own}.0", f"{own}.0", nccl):
            job.add(name)
        job.kill_remaining()
        assert [file.exists() for file in files] == [False, False, False, True, True]
    finally:
        for file in files:
            file.unlink(missing_ok=True)
    assert told == [f"{own}.0", nccl]


def test_shared_memory_that_a_process_has_mapped_is_its_job_s() -> None:
    names = [f"/dev/shm/{kind}busbw-test-{os.getpid()}" for kind in ("nccl-", "nccl-gone-", "x-")]
    code = (
        "import mmap, os, sys\n"
        "files = [open(name, 'wb+') for name in sys.argv[1:]]\n"
        "kept = [(file.truncate(1), mmap.mmap(file.fileno(), 1)) for file in files]\n"
        "os.unlink(sys.argv[2])\nprint(flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, *names]
    told: list[str] = []
    job = Cleanup("a job without processes")
    job.on_record = told.append
    try:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as child:  # type: ignore[call-overload]
            child.stdout.readline()
            job.record([child.pid])
            child.stdin.close()
        assert told == names[:1]
    finally:
        for name in names:
            Path(name).unlink(missing_ok=True)


@pytest.mark.parametrize(("node", "left"), [("", ["other.7"]), ("another host", None)])
def test_folders_of_the_launcher_are_removed_on_its_host(
    node: str, left: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TMP", "/nowhere")
    made = [f"ompi.{os.getpid()}", f"prte.{os.getpid()}", f"prterun.{os.getpid()}", "other.7"]
    for name in made:
        (tmp_path / name).mkdir()
    Cleanup("a job without processes", os.getpid(), node).kill_remaining()
    assert sorted(path.name for path in tmp_path.iterdir()) == (left or sorted(made))


def test_folders_of_other_jobs_and_behind_links_stay(tmp_path: Path) -> None:
    shared = tmp_path / "ompi.host.0"  # of Open MPI 4
    for folder in (shared / "pid.7", shared / "pid.8", tmp_path / "alone" / "pid.9"):
        folder.mkdir(parents=True)
    (tmp_path / "ompi.5").symlink_to(shared)
    job = Cleanup("a job without processes")
    for name in (shared / "pid.7", tmp_path / "alone" / "pid.9", tmp_path / "ompi.5", tmp_path):
        job.record_folder(str(name))
    job.kill_remaining()
    assert sorted(path.name for path in shared.iterdir()) == ["pid.8"]
    assert (tmp_path / "alone").is_dir() and not (tmp_path / "alone" / "pid.9").exists()
    job.record_folder(str(shared / "pid.8"))
    job.kill_remaining()
    assert not shared.exists()


def test_a_process_that_hangs_is_of_the_job_that_it_was_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(pid: int) -> bytes:
        raise TimeoutError

    job = Cleanup("a job without processes")
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            job.record([child.pid])
            monkeypatch.setattr("busbw.launch.cleanup._environment", hang)
            assert job.pids() == [child.pid]
            monkeypatch.setattr(process, "start_time", lambda _: -1)  # another process
            assert job.pids() == []
        finally:
            child.kill()


def test_a_daemon_is_of_the_job_of_its_launcher_and_of_the_ranks_that_it_started(
    tmp_path: Path,
) -> None:
    daemon = tmp_path / "prted"
    daemon.write_text(f"#!/bin/sh\n{MARKER}=started sleep 600 &\necho $!\nread line\nkill $!\n")
    daemon.chmod(0o755)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [str(daemon), "prterun-h1-4242@0"]
    with subprocess.Popen(command, text=True, **pipes) as child:  # type: ignore[call-overload]
        rank = int(child.stdout.readline())
        deadline = time.monotonic() + 30
        while rank not in Cleanup("started").pids() and time.monotonic() < deadline:
            time.sleep(0.01)  # sh has not yet executed sleep, and looks like the daemon
        assert Cleanup("no process", 4242, "h1").pids() == [child.pid]
        assert Cleanup("no process", 4243, "h1").pids() == []
        found = Cleanup("started").pids()
        child.stdin.write("\n")
    assert sorted(found) == sorted([rank, child.pid])


def test_a_job_has_the_processes_of_its_own_network_and_of_that_of_its_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def network(pid: int | str) -> str:
        return "of the launcher" if pid == child.pid else "of this process"

    monkeypatch.setattr(cleanup, "_network", network)
    environment = {MARKER: "in-a-network", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "600"], env=environment) as child:
        try:
            assert Cleanup("in-a-network").pids() == []
            assert Cleanup("in-a-network", child.pid, "another host").pids() == []
            assert Cleanup("in-a-network", child.pid).pids() == [child.pid]
        finally:
            child.kill()


def test_a_process_that_cannot_be_killed_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "prte.7"
    folder.mkdir()
    job = Cleanup("stays")
    job.record_folder(str(folder))
    with subprocess.Popen(["sleep", "600"], env={MARKER: "stays", **os.environ}) as child:
        with monkeypatch.context() as patch:
            patch.setattr(cleanup, "KILL_LIMIT_S", 0.01)
            patch.setattr(process, "kill", lambda _: None)
            job.kill_remaining()
        assert child.poll() is None and not folder.exists()
        monkeypatch.setattr(cleanup, "KILL_LIMIT_S", 3600.0)
        job.kill_remaining()  # as soon as nothing is left


def test_one_process_of_a_job_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "prted.7"
    monkeypatch.setenv(FOLDER, str(folder))
    for marker, is_ended in (("one-ends-it", True), ("", False)):
        folder.mkdir()
        monkeypatch.setenv(MARKER, marker)
        environment = {MARKER: marker, "PATH": os.environ["PATH"]}
        with subprocess.Popen(["sleep", "600"], env=environment) as child:
            with socket.socket(socket.AF_UNIX) as first:
                first.bind(f"\0{MARKER}.{marker}")
                end_job_here()
                assert child.poll() is None
            end_job_here()
            assert (child.poll() is not None) == is_ended
            assert folder.exists() != is_ended
            child.kill()


def test_folders_of_another_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "prte.7"
    folder.mkdir()
    job = Cleanup("a job without processes")
    job.record_folder(str(folder))
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    job.kill_remaining()
    assert folder.exists()


def test_what_is_known_without_variables_or_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    assert temporary() == Path("/tmp")
    assert variables(1 << 30) == {}


def test_folders_of_killed_and_failed_daemons_are_removed_those_of_other_jobs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    failed, of_another, killed = tmp_path / "prted.5", tmp_path / "prted.6", tmp_path / "killed"
    for folder, launcher in ((failed, 77), (of_another, 78)):
        folder.mkdir()
        (folder / f"pmix.h2.tool.prterun-h1-{launcher}@0").touch()
    program = tmp_path / "prted"
    program.symlink_to("/bin/sleep")
    job = Cleanup("none", 77, "h1")
    with subprocess.Popen([program, "600"], env={"TMPDIR": str(killed)}) as daemon:
        (killed / f"prted.{daemon.pid}").mkdir(parents=True)
        while process.name(daemon.pid) != "prted":  # it still executes
            time.sleep(0.01)
        job.record([daemon.pid])
        daemon.kill()
    job.remove_files()
    assert [path.exists() for path in (failed, of_another)] == [False, True]
    assert list(killed.iterdir()) == []
