"""Jobs of real ranks over gloo: each rank runs the named scenarios of a module one after the other
and says what came of each.

All ranks are forks of one process that has imported PyTorch: to start a rank costs a hundredth of a
second instead of two or three.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
AS_TORCHRUN = HERE / "as_torchrun.py"
LIMIT_S = 100  # below that of a test


def run(
    folder: Path,
    module: str,
    names: Sequence[str],
    ranks: int,
    hosts: int = 1,
    program: Path = HERE / "ranks.py",
    **more: str,
) -> list[dict[str, Any]]:
    """The results of each rank's scenarios, with its `code` and `stderr`; blocks of ranks act as
    `hosts` hosts.

    `module` is its name if it is beside the calling file, else its file. With the program
    AS_TORCHRUN scenarios join the ranks themselves.
    """
    beside_caller = str(Path(sys._getframe(1).f_code.co_filename).parent)
    argv = [str(folder), str(ranks), str(hosts), module, *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    # what a scenario finds does not depend on the machine
    if environment.get("ACCEL_DEVICE") != "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    request = {
        "program": str(program),
        "argv": argv,
        "environment": environment,
        "path": [beside_caller, *sys.path],
    }
    forge = _forge()
    try:
        forge.stdin.write(json.dumps(request) + "\n")
        forge.stdin.flush()
        assert select.select([forge.stdout], [], [], LIMIT_S)[0], (
            f"{module} has not ended within {LIMIT_S} s\n{_stacks(folder)}"
        )
        assert forge.stdout.readline() == "0\n"
    except BaseException:  # another job gets another
        _forge.cache_clear()
        _end(forge)
        raise
    return [_rank_result(folder, rank) for rank in range(ranks)]


@cache
def _forge() -> "subprocess.Popen[str]":
    argv = [sys.executable, str(HERE / "forge.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        argv,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(_end, started)
    return started


def _end(forge: "subprocess.Popen[str]") -> None:
    """With all ranks that it may have."""
    if forge.poll() is None:
        os.killpg(forge.pid, signal.SIGKILL)
    forge.wait()
    for stream in (forge.stdin, forge.stdout):
        with contextlib.suppress(OSError):  # what was to be written stays unwritten
            stream.close()


def all_well(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same results, if every rank exited with 0; otherwise the test fails with the stderr
    of the others.
    """
    failed = [
        f"rank {rank}, exit code {result['code']}: {result['stderr'][-2000:]}"
        for rank, result in enumerate(results)
        if result["code"]
    ]
    assert not failed, "\n".join(failed)
    return results


def _stacks(folder: Path) -> str:
    """The end of each rank's stderr, which shows where it waits."""
    return "\n".join(
        f"{file.name}: {file.read_text()[-3000:]}" for file in sorted(folder.glob("*.err"))
    )


def _rank_result(folder: Path, rank: int) -> dict[str, Any]:
    words = (folder / f"{rank}.out").read_text().splitlines()
    code = int((folder / f"{rank}.code").read_text())
    return {
        **(json.loads(words[-1]) if words else {}),
        "code": code,
        "stderr": (folder / f"{rank}.err").read_text(),
    }
