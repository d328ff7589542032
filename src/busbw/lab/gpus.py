"""The machine's GPUs, divided among the hosts of a lab. Where hosts share one, CUDA's Multi-Process Service (MPS) divides it.

Without MPS the kernels of two processes would alternate, and those of NCCL would wait for each other.
"""

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.launch.cleanup import MARKER, Cleanup

CONTROL = "nvidia-cuda-mps-control"
LIMIT_S = 20.0
_MARK = "busbw-lab-mps"


@dataclass(frozen=True, slots=True)
class Share:
    """A host's GPUs by number; `percent` of the multiprocessors where others use it too."""

    gpus: tuple[int, ...] = ()
    percent: int | None = None


def divide(hosts: int, found: int, each: int | None) -> list[Share]:
    """The share of each host in `found` GPUs: `each` of its own; without that, one of its own or a part of one. UsageError."""
    if each is not None and each * hosts > found:
        raise UsageError(
            f"--gpus {each}: {hosts} hosts need {each * hosts} GPUs, and this machine has {found}", "leave --gpus out to share them"
        )
    if found == 0 or each == 0:
        return [Share()] * hosts
    if each or hosts <= found:
        count = each or 1
        return [Share(tuple(range(number * count, (number + 1) * count))) for number in range(hosts)]
    users = [len(range(gpu, hosts, found)) for gpu in range(found)]
    return [Share((number % found,), 100 // users[number % found] if users[number % found] > 1 else None) for number in range(hosts)]


def start_mps() -> str:
    """Start MPS for hosts that share a GPU; if it runs already, that one is used. The reason why there is none; '' if there is."""
    control = shutil.which(CONTROL)
    if control is None:
        return f"no {CONTROL} here: the kernels of hosts that share a GPU alternate, and NCCL between them may hang"
    done = subprocess.run([control, "-d"], env={**os.environ, MARKER: _MARK}, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    return "" if done.returncode == 0 or "already" in done.stdout + done.stderr else f"{CONTROL}: {(done.stderr or done.stdout).strip()}"


def stop_mps() -> None:
    """Stop the MPS that `start_mps` started, if it still runs; another one is left alone."""
    started, control = Cleanup(_MARK), shutil.which(CONTROL)
    if not started.pids():
        return
    if control:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for a client, and is killed next
            subprocess.run([control], input=b"quit\n", capture_output=True, check=False, timeout=LIMIT_S)
    started.kill_remaining()
