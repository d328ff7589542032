"""GPUDirect RDMA of one host: each RDMA device writes from the memory of its nearest GPU to itself, with perftest. A check judges."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import msgspec

from busbw.link import perftest

CALL = "gpudirect_loopback"
LISTEN_S, END_S = 10.0, 20.0  # at most, for a server to listen, and for a client beyond its test
MOST_PORTS = 16
NOT_INSTALLED = "ib_write_bw of perftest is not installed"
WITHOUT_CUDA = f"ib_write_bw is built without CUDA (no --use_cuda); {perftest.BUILD}"


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """One port, and the GPU whose memory it read and wrote: a rate, or the reason why there is none."""

    port: str
    gpu: int
    bytes_per_s: float | None = None
    error: str = ""


class Loopback(msgspec.Struct, frozen=True):
    """All ports that have a GPU; `reason` says why none was tried."""

    loops: tuple[Loop, ...] = ()
    reason: str = ""


def longest_s(seconds: float) -> float:
    """The most that all ports take with `seconds` for each."""
    return MOST_PORTS * (seconds + LISTEN_S + END_S)


def run(seconds: float) -> Loopback:
    """`seconds` on each port of this machine, in a process of its own, in which CUDA counts GPUs as NVML does."""
    words = (sys.executable, "-m", "busbw.check.loopback_run", str(seconds))
    limit_s = longest_s(seconds)
    environment = os.environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, env=environment) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
            return msgspec.json.decode(said, type=Loopback)
        except subprocess.TimeoutExpired:
            return Loopback(reason=f"perftest did not end within {limit_s:.0f} s")
        except msgspec.DecodeError:
            return Loopback(reason=f"the test ended with exit code {process.returncode}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
