"""`python -m busbw.check.load.rdma_loopback_run SECONDS` measures GPUDirect RDMA on each port.

It prints a Loopback as JSON. Ports run one at a time, and listen only on the loopback address where
perftest can.
"""

import sys
from collections.abc import Iterator

import msgspec

from busbw.check.load.rdma_loopback import (
    END_S,
    LISTEN_S,
    MAX_PORTS,
    NOT_INSTALLED,
    WITHOUT_CUDA,
    Loopback,
    PortLoopback,
)
from busbw.check.machine import Machine, Part, RdmaPort, gpus, rdma_nics
from busbw.check.nic.links import own_ports
from busbw.check.pcie.upstream import nearest
from busbw.core.errors import NoMeasurement
from busbw.host.nic import V2, read_gids
from busbw.host.nvml_health import read_health
from busbw.host.source import LiveMachine
from busbw.link import perftest

LOOPBACK_ADDRESS = "127.0.0.1"
MESSAGE_BYTES = 1 << 20


def measure_ports(machine: Machine, seconds: float) -> Loopback:
    """The rate of each port next to a GPU, one after the other."""
    pairs = list(_pairs(machine))
    if not pairs:
        return Loopback(reason="no active RDMA port with a GPU")
    program = perftest.detect()
    if program is None or not program.gpu:
        return Loopback(reason=WITHOUT_CUDA if program else NOT_INSTALLED)
    return Loopback(tuple(_loop(machine, port, gpu, seconds) for port, gpu in pairs[:MAX_PORTS]))


def _pairs(machine: Machine) -> Iterator[tuple[RdmaPort, int]]:
    """Each active port whose device is the nearest of a GPU, with that GPU's number."""
    numbers = {gpu.bus_id: gpu.index for gpu in read_health(machine).gpus if not gpu.error}
    cards: dict[str, Part] = {}
    for gpu in gpus(machine):
        nic = nearest(gpu, rdma_nics(machine), machine)
        if nic and gpu.device.bdf in numbers:
            cards.setdefault(nic.name, gpu)
    for port in own_ports(machine):
        if port.active and port.device in cards:
            yield port, numbers[cards[port.device].device.bdf]


def _loop(machine: Machine, port: RdmaPort, gpu: int, seconds: float) -> PortLoopback:
    gids = []
    if port.roce:
        of_port = read_gids(machine, port.path)
        gids = [gid.index for gid in of_port if gid.kind == V2 and gid.routable]
    test = perftest.Test(
        program=perftest.BANDWIDTH,
        device=port.device,
        device_port=int(port.number),
        gid_index=gids[0] if gids else None,
        size=MESSAGE_BYTES,
        seconds=seconds,
        gpu=gpu,
        address=LOOPBACK_ADDRESS,
    )
    try:
        server, number = perftest.serve(test, LISTEN_S)
        try:
            output = perftest.client(test, LOOPBACK_ADDRESS, number, seconds + END_S)
        finally:
            server.end()
        result = perftest.bandwidth(output, MESSAGE_BYTES)
        if result is None:
            raise perftest.unreadable(output)
        return PortLoopback(port=port.name, gpu=gpu, bytes_per_s=result.rate)
    except NoMeasurement as error:
        return PortLoopback(port=port.name, gpu=gpu, error=str(error))


if __name__ == "__main__":
    sys.stdout.write(
        msgspec.json.encode(measure_ports(Machine(LiveMachine()), float(sys.argv[1]))).decode()
    )
