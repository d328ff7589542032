"""GPUDirect RDMA within one host, measured with perftest.

Each RDMA device writes from the memory of its nearest GPU to itself.
"""

import msgspec

from busbw.check.measuring import measured
from busbw.link import perftest

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
    """The most that all ports take with `seconds` for each."""
    return MOST_PORTS * (seconds + LISTEN_S + END_S)


def run(seconds: float) -> Loopback:
    """`seconds` on each port of this machine, in a process of its own.

    CUDA counts GPUs as NVML does.
    """
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    said = measured(
        "busbw.check.loopback_run",
        seconds,
        longest_s(seconds),
        Loopback,
        what="perftest",
        environment=environment,
    )
    return Loopback(reason=said) if isinstance(said, str) else said
