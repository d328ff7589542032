"""All facts of one machine in one call."""

from busbw.core.topology import Host
from busbw.host.cpu import read_machine
from busbw.host.gpu import read_gpus
from busbw.host.nic import read_nics
from busbw.host.source import Live, Source


def read_host(source: Source | None = None) -> Host:
    """The Host that `source` describes, the live machine by default. Never raises for what a machine lacks: see Host."""
    source = source or Live()
    machine = read_machine(source)
    gpus = read_gpus(source)
    return Host(
        hostname=machine.hostname,
        boot_id=machine.boot_id,
        kernel=machine.kernel,
        cpus=machine.cpus,
        memory_bytes=machine.memory_bytes,
        gpus=gpus.gpus,
        nics=read_nics(source),
        gpu_reason=gpus.reason,
        driver=gpus.driver,
        congestion=machine.congestion,
    )
