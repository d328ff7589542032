"""All facts of one machine in one call."""

import os

from busbw.core.topology import Host
from busbw.host.cpu import count_list, meminfo, running_processes
from busbw.host.gpu import read_gpus
from busbw.host.nic import read_nics, with_lab_rate
from busbw.host.source import LiveMachine, Source


def read_host(source: Source | None = None) -> Host:
    """The Host that `source` describes, by default the live machine.

    Facts that cannot be read stay empty or 0: see Host.
    """
    source = source or LiveMachine()

    def text(path: str) -> str:
        return source.read(path).text or ""

    gpus, nics = read_gpus(source), read_nics(source)
    if isinstance(source, LiveMachine):
        nics = with_lab_rate(nics, os.environ)
    return Host(
        hostname=text("/proc/sys/kernel/hostname"),
        boot_id=text("/proc/sys/kernel/random/boot_id"),
        kernel=text("/proc/sys/kernel/osrelease"),
        cpus=count_list(text("/sys/devices/system/cpu/online")),
        memory_bytes=meminfo(source, "MemTotal"),
        gpus=gpus.gpus,
        nics=nics,
        gpu_reason=gpus.reason,
        driver=gpus.driver,
        congestion=text("/proc/sys/net/ipv4/tcp_congestion_control"),
        running=running_processes(source),
    )
