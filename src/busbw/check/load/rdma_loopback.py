"""GPUDirect RDMA within the host, by perftest: each RDMA device writes from the memory of its
nearest GPU to itself.

The module `rdma_loopback_run` measures in a process of its own.
"""

import msgspec

from busbw.check.load.measurement import run_measurement
from busbw.link import perftest

CALL = "gpudirect_loopback"
LISTEN_S, END_S = 10.0, 20.0  # at most, for a server to listen, and for a client beyond its test
MAX_PORTS = 16  # measured
NOT_INSTALLED = "ib_write_bw of perftest is not installed"
WITHOUT_CUDA = f"ib_write_bw is built without CUDA (no --use_cuda); {perftest.BUILD}"


class PortLoopback(msgspec.Struct, frozen=True, kw_only=True):
    """One port and the GPU whose memory it read and wrote: a rate, or why there is none."""

    port: str
    gpu: int
    bytes_per_s: float | None = None
    error: str = ""


class Loopback(msgspec.Struct, frozen=True):
    """All ports that have a GPU; `reason` says why none was tried."""

    loops: tuple[PortLoopback, ...] = ()
    reason: str = ""


def longest_s(seconds: float) -> float:
    """The longest time that all ports take with `seconds` for each, in seconds."""
    return MAX_PORTS * (seconds + LISTEN_S + END_S)


def run(seconds: float) -> Loopback:
    """`seconds` on each port of this machine, in a process of its own.

    CUDA counts GPUs as NVML does.
    """
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    answer = run_measurement(
        "busbw.check.load.rdma_loopback_run",
        seconds,
        longest_s(seconds),
        Loopback,
        what="perftest",
        environment=environment,
    )
    return Loopback(reason=answer) if isinstance(answer, str) else answer
