"""The processes of an aborted job are found by a variable in their environment."""

import os
import subprocess
from pathlib import Path

from busbw.launch.cleanup import MARKER, Cleanup


def test_a_process_is_found_at_any_moment_also_while_it_executes_another_program(tmp_path: Path) -> None:
    program = tmp_path / "again"
    program.write_text('#!/bin/sh\nexec "$0"\n')  # the kernel shows no environment for a part of this
    program.chmod(0o755)
    job = Cleanup(f"again{os.getpid()}")
    with subprocess.Popen([str(program)], env={MARKER: f"again{os.getpid()}", "PATH": os.environ["PATH"]}) as process:
        try:
            assert all(job.pids() == [process.pid] for _ in range(300))
        finally:
            process.kill()
    assert job.pids() == []
