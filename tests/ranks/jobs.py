"""Jobs of real ranks over gloo: each rank runs the named scenarios of a module one after the other
and says what came of each.

All ranks are forks of one process that has imported PyTorch (warm_python.py): to start a rank costs
a hundredth of a second instead of two or three.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import warm_python

HERE = Path(__file__).parent
AS_TORCHRUN = HERE / "as_torchrun.py"
LIMIT_S = 240  # below that of a test; a busy machine takes several times as long as an idle one


def run(
    folder: Path,
    module: str,
    names: Sequence[str],
    ranks: int,
    hosts: int = 1,
    program: Path = HERE / "ranks.py",
    may_fail: bool = False,
    **more: str,
) -> list[dict[str, Any]]:
    """The results of each rank's scenarios, with its `code` and `stderr`; blocks of ranks act as
    `hosts` hosts. Unless it may fail, every rank exits with 0.

    `module` is its name if it is beside the calling file, else its file. With the program
    AS_TORCHRUN scenarios join the ranks themselves.
    """
    beside_caller = str(Path(sys._getframe(1).f_code.co_filename).parent)
    words = [program, folder, ranks, hosts, module, *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    # what a scenario finds does not depend on the machine
    if environment.get("ACCEL_DEVICE") != "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    environment["PYTHONPATH"] = ":".join([beside_caller, *filter(None, sys.path)])
    try:
        assert _exit_code([str(word) for word in words], environment) == 0
    except TimeoutError:
        stacks = _stacks(folder)
        raise AssertionError(f"{module} has not ended within {LIMIT_S} s\n{stacks}") from None
    results = [_rank_result(folder, rank) for rank in range(ranks)]
    failed = [
        f"rank {rank}, exit code {result['code']}: {result['stderr'][-2000:]}"
        for rank, result in enumerate(results)
        if result["code"]
    ]
    assert may_fail or not failed, "\n".join(failed)
    return results


def _exit_code(words: list[str], environment: dict[str, str]) -> int:
    """Run a program as a Python that has imported PyTorch does, without starting that Python; a
    program whose connection is closed is killed.
    """
    request = [words, environment, str(Path.cwd()), sorted(os.sched_getaffinity(0)), [0, 1, 2]]
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(str(Path(warm_python.started(warm_python.TORCH)).with_name("socket")))
        socket.send_fds(server, [b"0"], [0, 1, 2])
        server.sendall(json.dumps(request).encode() + b"\n")
        server.settimeout(LIMIT_S)
        return int(server.recv(16) or -signal.SIGKILL)


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
