"""The machine's GPUs, divided among the hosts of a lab.

Where hosts share a GPU, CUDA's Multi-Process Service (MPS) divides it. Without MPS the kernels of
two processes would alternate, and those of NCCL would wait for each other.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.host import nvml
from busbw.launch.cleanup import MARKER, Cleanup

CONTROL = "nvidia-cuda-mps-control"
VISIBLE, PIPES = "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY"
DEFAULT_PIPES = "/tmp/nvidia-mps"  # https://docs.nvidia.com/deploy/mps, environment variables
LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class GpuShare:
    """A host's GPUs by number; with `percent` of the multiprocessors if other hosts use the GPU
    too.
    """

    gpus: tuple[int, ...] = ()
    percent: int | None = None


def visible_gpus() -> list[int]:
    """Numbers of the GPUs that a lab made by this process may use: all, or those of
    CUDA_VISIBLE_DEVICES.

    UsageError for other names.
    """
    gpus, chosen = list(range(nvml.count() or 0)), os.environ.get(VISIBLE)
    if chosen is None or not gpus:
        return gpus
    words = [word.strip() for word in chosen.split(",") if word.strip()]
    if not all(word.isdecimal() and int(word) in gpus for word in words):
        raise UsageError(
            f"{VISIBLE}={chosen}: a lab divides GPUs by number, here 0 to {gpus[-1]}",
            f"unset {VISIBLE}",
        )
    return [int(word) for word in dict.fromkeys(words)]


def divide(hosts: int, gpus: Sequence[int], per_host: int | None) -> list[GpuShare]:
    """The share of each host in the GPUs: `per_host` of them, or one if that is None.

    Hosts share GPUs if there are not enough for all of them. UsageError if there are too few for
    one host.
    """
    if per_host is not None and per_host > len(gpus):
        here = f"this machine has {len(gpus)}" if gpus else "this machine has no GPU"
        raise UsageError(f"--gpus {per_host}: {here}", "leave --gpus out")
    if not gpus or per_host == 0:
        return [GpuShare()] * hosts
    count = per_host or 1
    numbers = itertools.cycle(gpus)
    taken = [tuple(itertools.islice(numbers, count)) for _ in range(hosts)]
    users = Counter(itertools.chain.from_iterable(taken))
    most = [max(users[gpu] for gpu in own) for own in taken]
    return [
        GpuShare(own, 100 // sharing if sharing > 1 else None)
        for own, sharing in zip(taken, most, strict=True)
    ]


def mps_folder() -> str:
    """The folder where MPS and its clients meet, for processes with this one's environment."""
    return os.environ.get(PIPES) or DEFAULT_PIPES


def start_mps(folder: str) -> str:
    """Start MPS for hosts that share a GPU; if one runs in `folder`, it is used.

    Returns the reason why there is none, '' if there is one.
    """
    control = shutil.which(CONTROL)
    if control is None:
        return (
            f"no {CONTROL} here: the kernels of hosts that share a GPU alternate, and NCCL between"
            " them may hang"
        )
    environ = {**os.environ, PIPES: folder, MARKER: _mark(folder)}
    environ.pop(VISIBLE, None)  # MPS would number these GPUs from 0
    with tempfile.TemporaryFile() as output:  # not a pipe, which the daemon could keep open
        try:
            done = subprocess.run(
                [control, "-d"],
                env=environ,
                stdout=output,
                stderr=output,
                check=False,
                timeout=LIMIT_S,
            )
        except OSError as error:
            return f"{CONTROL}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"{CONTROL}: it is not done within {LIMIT_S:g} s"
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
    if done.returncode == 0 or "already" in text:
        return ""
    return f"{CONTROL}: {text or f'exit code {done.returncode}'}"


def stop_mps(folder: str) -> None:
    """Stop the MPS that `start_mps` started in `folder`; an MPS that others started stays."""
    processes, control = Cleanup(_mark(folder)), shutil.which(CONTROL)
    if not processes.pids():
        return
    if control:
        # If it waits for a client, it is killed below.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            environ = {**os.environ, PIPES: folder}
            subprocess.run(
                [control],
                input=b"quit\n",
                env=environ,
                capture_output=True,
                check=False,
                timeout=LIMIT_S,
            )
    processes.kill_remaining()


def _mark(folder: str) -> str:
    """In the environment of the daemon and of the servers that it starts."""
    return f"busbw-lab-mps:{folder}"
