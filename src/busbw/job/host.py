"""Data of one host of a job: its processes, GPUs and counters over some seconds, and NCCL's RAS if
requested.

`python -m busbw.job.host` answers the request on its stdin.
"""

import platform
import sys
import time

import msgspec

from busbw.core.errors import BusbwError
from busbw.core.link_samples import WatchInterval
from busbw.host import gpu, process, ras
from busbw.host.addresses import local
from busbw.host.link_counters import LinkCounters
from busbw.host.source import Unavailable
from busbw.job.types import HostRequest, JobHostStatus
from busbw.watch.watcher import Watcher

RAS_S = 10.0  # NCCL itself waits 5 s for unresponsive ranks


def read_host(ask: HostRequest) -> JobHostStatus:
    """The answer, after `ask.seconds` and at most RAS_S more."""
    addresses = [str(interface.ip) for interface in local().values() if interface]
    host = JobHostStatus(node=platform.node(), addresses=addresses)
    if ask.seconds:
        host.watched = _watched(ask.seconds, host.unread)
        try:
            host.gpus = gpu.loads()
        except Unavailable as error:
            host.unread.append(str(error))
    host.states = {pid: process.state(pid) for pid in ask.pids}
    if ask.ras is not None:
        host.ras, host.no_ras = report(ask.ras)
    return host


def report(at: str) -> tuple[str, str]:
    """The report of the RAS service at HOST:PORT, by default this host's, and why there is none."""
    try:
        return ras.status(ras.host_and_port(at) or ras.address(), RAS_S, json=True), ""
    except Unavailable as error:
        return "", str(error)


def _watched(seconds: float, unread: list[str]) -> WatchInterval | None:
    try:
        traffic = LinkCounters()
    except BusbwError as error:
        unread.append(error.message)
        time.sleep(seconds)
        return None
    try:
        watcher = Watcher(platform.node(), traffic.read())
        time.sleep(seconds)
        return watcher.take(traffic.read())
    finally:
        traffic.close()


if __name__ == "__main__":
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=HostRequest)
    sys.stdout.write(msgspec.json.encode(read_host(request)).decode())
