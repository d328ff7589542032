"""The launcher's look at its host while a process there hangs in the kernel: its files in /proc
are FIFOs, and block whoever reads them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.netlab

SOURCE = str(Path(__file__).parents[2] / "src")
SCRIPT = """
import os, subprocess, sys
from busbw.core.rank_messages import Here
from busbw.host import process
from busbw.launch import on_host, survey
from busbw.launch.cleanup import MARKER, Cleanup

def rank(number):
    environ = {MARKER: "hung", "OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_SIZE": "2"}
    return subprocess.Popen([on_host.RANK_PROGRAM, "600"], executable="/bin/sleep", env=environ)

hung, fine = rank(0), rank(1)
os.mkfifo(sys.argv[1])
for file in ("environ", "cmdline", "maps"):
    subprocess.run(["mount", "--bind", sys.argv[1], f"/proc/{hung.pid}/{file}"], check=True)
job, own = Cleanup("hung"), os.uname().nodename
job.record([hung.pid, fine.pid])
seen = survey.survey(job, {0: Here(0, own, hung.pid)}, {0: hung.pid}, (), 5)
print(process.command(hung.pid) == "", sorted(seen.states), seen.unreported == {1: Here(1, own, fine.pid)})
job.kill_remaining()
print(hung.wait(60), fine.wait(60))
"""


def test_the_other_ranks_are_named_and_all_are_ended(tmp_path: Path) -> None:
    argv = ["unshare", "--mount", sys.executable, "-c", SCRIPT, str(tmp_path / "stuck")]
    done = subprocess.run(
        argv,
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == "True [0, 1] True\n-9 -9\n", done.stderr
