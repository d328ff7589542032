"""Measurements that checks make on this machine, each in a process of its own.

A process that hangs or crashes can be given up. `run` measures GPUDirect RDMA within the host with
perftest: each RDMA device writes from the memory of its nearest GPU to itself.
"""

import os
import subprocess
from typing import TypeVar

import msgspec

from busbw.core import program
from busbw.host.process import die_with_parent, kill_with_children
from busbw.link import perftest

Answer = TypeVar("Answer")


def measured(
    module: str,
    seconds: float,
    limit_s: float,
    kind: type[Answer],
    *,
    what: str,
    environment: dict[str, str] | None = None,
) -> Answer | str:
    """The answer of `python -m module seconds`, which prints it as JSON.

    A text about `what` says why there is none. The process is killed after `limit_s` seconds with
    all that it started. They stay in the group of this process, which `host.limited` kills when it
    gives up.
    """
    process = subprocess.Popen(
        program.words(module, str(seconds)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | (environment or {}),
        preexec_fn=die_with_parent,
    )
    with process:
        try:
            out, error = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return f"{what} did not end within {limit_s:.0f} s"
        finally:
            if process.returncode is None:
                kill_with_children(process.pid)
    try:
        return msgspec.json.decode(out, type=kind)
    except msgspec.DecodeError:
        lines = error.decode(errors="replace").strip().splitlines()
        reason = f": {lines[-1]}" if lines else ""
        return f"{what} ended with exit code {process.returncode}{reason}"


CALL = "gpudirect_loopback"
LISTEN_S, END_S = 10.0, 20.0  # at most, for a server to listen, and for a client beyond its test
MOST_PORTS = 16
NOT_INSTALLED = "ib_write_bw of perftest is not installed"
WITHOUT_CUDA = f"ib_write_bw is built without CUDA (no --use_cuda); {perftest.BUILD}"


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """One port and the GPU whose memory it read and wrote: a rate, or why there is none."""

    port: str
    gpu: int
    bytes_per_s: float | None = None
    error: str = ""


class Loopback(msgspec.Struct, frozen=True):
    """All ports that have a GPU; `reason` says why none was tried."""

    loops: tuple[Loop, ...] = ()
    reason: str = ""


def longest_s(seconds: float) -> float:
    """The longest time that all ports take with `seconds` for each, in seconds."""
    return MOST_PORTS * (seconds + LISTEN_S + END_S)


def run(seconds: float) -> Loopback:
    """`seconds` on each port of this machine, in a process of its own.

    CUDA counts GPUs as NVML does.
    """
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    answer = measured(
        "busbw.check.loopback_run",
        seconds,
        longest_s(seconds),
        Loopback,
        what="perftest",
        environment=environment,
    )
    return Loopback(reason=answer) if isinstance(answer, str) else answer
