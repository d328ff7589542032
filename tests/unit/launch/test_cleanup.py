"""The processes of an aborted job are found by a variable in their environment."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from busbw.host import process
from busbw.launch.cleanup import MARKER, Cleanup, variables


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


def test_a_process_without_variables_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("busbw.launch.cleanup.EXEC_S", 3600.0)
    with subprocess.Popen(["sleep", "600"], env={}) as asleep:
        try:
            while not process.has_no_variables(asleep.pid):  # it still executes
                time.sleep(0.01)
            assert variables(asleep.pid) == {}
        finally:
            asleep.kill()


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
