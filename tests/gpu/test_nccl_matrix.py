"""Every collective, element type and operator gives the right bits on real GPUs, for any
distribution of ranks over processes.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("run_matrix.py")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def verified(output: str) -> int:
    last = output.strip().splitlines()[-1]
    match = re.match(r"(\d+) combinations verified, 0 wrong, \d+ unsupported", last)
    assert match, last
    return int(match.group(1))


@pytest.mark.parametrize("register", [0, 1, 2])
def test_one_process_drives_all_gpus(gpus, register):
    assert (
        verified(
            run(
                [
                    sys.executable,
                    str(SCRIPT),
                    "--gpus",
                    str(min(gpus, 8)),
                    "--register",
                    str(register),
                ]
            )
        )
        > 500
    )


def test_one_process_per_gpu(gpus):
    mpirun = shutil.which("mpirun")
    if gpus < 2 or mpirun is None:
        pytest.skip(f"needs 2 GPUs and mpirun; there are {gpus} GPUs, and mpirun is {mpirun}")
    command = [mpirun, "--allow-run-as-root", "-np", str(min(gpus, 8)), sys.executable, str(SCRIPT)]
    assert verified(run(command)) > 500
