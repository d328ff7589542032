"""The machine's GPUs, divided among the hosts of a lab.

Where hosts share one, CUDA's Multi-Process Service (MPS) divides it.

Without MPS the kernels of two processes would alternate, and those of NCCL would wait for each
other.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
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
class Share:
    """A host's GPUs by number; `percent` of the multiprocessors where others use it too."""

    gpus: tuple[int, ...] = ()
    percent: int | None = None


def visible() -> list[int]:
    """Numbers of the GPUs that a lab made by this process may use: all, or those of
    CUDA_VISIBLE_DEVICES.

    UsageError for other names.
    """
    every, chosen = list(range(nvml.count() or 0)), os.environ.get(VISIBLE)
    if chosen is None or not every:
        return every
    words = [word.strip() for word in chosen.split(",") if word.strip()]
    if not all(word.isdecimal() and int(word) in every for word in words):
        raise UsageError(
            f"{VISIBLE}={chosen}: a lab divides GPUs by number, here 0 to {every[-1]}",
            f"unset {VISIBLE}",
        )
    return [int(word) for word in dict.fromkeys(words)]


def divide(hosts: int, found: Sequence[int], each: int | None) -> list[Share]:
    """The share of each host in the GPUs `found`: `each` of its own; without that, one of its own
    or a part of one.

    UsageError.
    """
    if each is not None and each * hosts > len(found):
        hint = "leave --gpus out to share them" if found else "leave --gpus out"
        raise UsageError(
            f"--gpus {each}: {hosts} hosts need {each * hosts} GPUs, and this machine has"
            f" {len(found)}",
            hint,
        )
    if not found or each == 0:
        return [Share()] * hosts
    if each or hosts <= len(found):
        count = each or 1
        return [
            Share(tuple(found[number * count : (number + 1) * count])) for number in range(hosts)
        ]
    users = [len(range(place, hosts, len(found))) for place in range(len(found))]
    places = [number % len(found) for number in range(hosts)]
    return [
        Share((found[place],), 100 // users[place] if users[place] > 1 else None)
        for place in places
    ]


def mps_folder() -> str:
    """Where MPS and its clients meet, for processes with this one's environment."""
    return os.environ.get(PIPES) or DEFAULT_PIPES


def start_mps(folder: str) -> str:
    """Start MPS for hosts that share a GPU; if one runs in `folder`, it is used.

    The reason why there is none; '' if there is.
    """
    control = shutil.which(CONTROL)
    if control is None:
        return (
            f"no {CONTROL} here: the kernels of hosts that share a GPU alternate, and NCCL between"
            " them may hang"
        )
    environ = {**os.environ, PIPES: folder, MARKER: _mark(folder)}
    environ.pop(VISIBLE, None)  # MPS would number those anew
    with tempfile.TemporaryFile() as said:  # not a pipe, which the daemon could keep open
        try:
            done = subprocess.run(
                [control, "-d"], env=environ, stdout=said, stderr=said, check=False, timeout=LIMIT_S
            )
        except OSError as error:
            return f"{CONTROL}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"{CONTROL}: it is not done within {LIMIT_S:g} s"
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    return (
        ""
        if done.returncode == 0 or "already" in text
        else f"{CONTROL}: {text or f'exit code {done.returncode}'}"
    )


def stop_mps(folder: str) -> None:
    """Stop the MPS that `start_mps` started in `folder`, if it still runs; others are left
    alone.
    """
    started, control = Cleanup(_mark(folder)), shutil.which(CONTROL)
    if not started.pids():
        return
    if control:
        # it waits for a client, and is killed next
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
    started.kill_remaining()


def _mark(folder: str) -> str:
    """In the environment of the daemon and of the servers that it starts."""
    return f"busbw-lab-mps:{folder}"
