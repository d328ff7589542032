"""Which network NCCL shall use, and which one it says that it uses."""

import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.networks import BY_NAME, THREADS_VARIABLE, blocks, channels, chosen
from busbw.core.result import Library
from busbw.engines import nccl_log
from busbw.engines.base import Control
from busbw.engines.registry import engine, refuse_network
from busbw.host import net_plugin
from busbw.launch import interfaces
from busbw.measure.job import Job

MOST_HOSTS = 4  # named in an error
HINT = "NCCL_DEBUG=INFO busbw run ...   (why NCCL chose so), and busbw env net on that host   (whether the plugin loads)"


@contextmanager
def starting(job: Job, control: Control) -> Iterator[nccl_log.Log]:
    """Around the start of an engine: sets NCCL's variables on this process for --net, and hears what NCCL says meanwhile. Collective.

    UsageError for an engine without NCCL; NoMeasurement where the plugin is not on this host, or NCCL does not start with that network.
    """
    refuse_network(job.net, job.engine)
    os.environ.update(net_plugin.variables(job.net))
    if job.net and BY_NAME[job.net].plugin:
        os.environ.update(_blocks(job, control))
    if not engine(job.engine).nccl:
        yield nccl_log.Log()
        return
    with nccl_log.listening() as log:
        try:
            yield log
        except (NoMeasurement, RuntimeError) as error:  # PyTorch's errors are RuntimeErrors
            if not job.net:
                raise
            raise NoMeasurement(f"{error} (asked for --net {job.net}, NCCL takes no other network)", HINT) from error


def _blocks(job: Job, control: Control) -> dict[str, str]:
    """For all ranks, as they must be: what the host with the fastest network needs; none where somebody has chosen. Collective."""
    mine = None if chosen(os.environ) else channels(interfaces.plugin_rate(os.environ))
    said = control.allgather((mine, platform.node(), job.gpus_per_process, os.environ.get(THREADS_VARIABLE)))
    wanted, hosts, gpus, threads = zip(*said, strict=True)
    if None in wanted:
        return {}
    apart = len(set(hosts)) == sum(gpus)
    return blocks(max(wanted), narrow=apart and not any(threads))


def agreed(job: Job, control: Control, library: Library, heard: Sequence[str]) -> str:
    """The network of all processes, of the networks that each one `heard` of: '' where no log names one. Collective.

    NoMeasurement where a process uses another than --net asks for: what would be measured is not what was asked. UsageError where the
    engine's `library` turned out to be none of NCCL's.
    """
    if job.net and not library.nccl:
        raise UsageError(f"--net {job.net}: PyTorch has no GPU here and moves no data through NCCL", "leave out --net")
    places: dict[str, list[str]] = defaultdict(list)
    for host, names in control.allgather((platform.node(), tuple(heard))):
        for name in names:
            if host not in places[name]:
                places[name].append(host)
    asked = BY_NAME[job.net].nccl if job.net else ""
    others = [name for name in places if asked and name.casefold() != asked.casefold()]
    if others:
        used = "; ".join(f"{name} on {_some(places[name])}" for name in others)
        raise NoMeasurement(f"--net {job.net} asks NCCL for {asked}, and it uses {used}", HINT)
    return ", ".join(sorted(places))


def _some(hosts: Sequence[str]) -> str:
    rest = len(hosts) - MOST_HOSTS
    return ", ".join(hosts[:MOST_HOSTS]) + (f" and {rest} more hosts" if rest > 0 else "")


def unconfirmed(job: Job, network: str) -> str:
    """What to tell where --net is given and no log confirms it; '' otherwise."""
    if not job.net or network:
        return ""
    level = os.environ.get(nccl_log.LEVEL, "")
    why = f"NCCL_DEBUG={level} keeps it out of NCCL's log" if level else "NCCL's log does not name it"
    return f"note: --net {job.net} could not be confirmed: {why}; NCCL was told to use no other"
