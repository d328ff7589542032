"""Which network NCCL should use, and which one its log names."""

import logging
import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.networks import BY_NAME, THREADS_VARIABLE, blocks, channels, chosen
from busbw.core.result import Library
from busbw.engines import nccl_log
from busbw.engines.registry import engine, refuse_network
from busbw.host import net_plugin
from busbw.launch.control import Control
from busbw.measure.job import Job

LOG = logging.getLogger(__name__)

MAX_HOSTS = 4  # named in an error
HINT = (
    "NCCL_DEBUG=INFO busbw run ...   (the reason), and busbw env net on that host   (whether the"
    " plugin loads)"
)


@contextmanager
def starting(job: Job, control: Control) -> Iterator[nccl_log.Log]:
    """Around the start of an engine: set this process' NCCL variables for --net, and read NCCL's
    log meanwhile.

    Collective.

    UsageError for an engine without NCCL. NoMeasurement if the plugin is not on this host, or NCCL
    does not start with that network.
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
            raise NoMeasurement(
                f"{error} (with --net {job.net} NCCL uses no other network)", HINT
            ) from error


def _blocks(job: Job, control: Control) -> dict[str, str]:
    """The channel variables, equal on all ranks: those for the fastest network of any host; none if
    the user has chosen.

    Collective.
    """
    mine = None if chosen(os.environ) else channels(net_plugin.rate(os.environ))
    said = control.allgather(
        (mine, platform.node(), job.gpus_per_process, os.environ.get(THREADS_VARIABLE))
    )
    wanted, hosts, gpus, threads = zip(*said, strict=True)
    if None in wanted:
        return {}
    apart = len(set(hosts)) == sum(gpus)
    return blocks(max(wanted), narrow=apart and not any(threads))


def agreed(job: Job, control: Control, library: Library, heard: Sequence[str]) -> str:
    """The network of all processes, from the networks that each process `heard` of in NCCL's log;
    '' if no log names one.

    Collective.

    NoMeasurement if a process uses another network than --net: the measurement would be of the
    wrong one. UsageError if the engine's `library` is not NCCL.
    """
    if job.net and not library.nccl:
        raise UsageError(
            f"--net {job.net}: PyTorch found no GPU and does not use NCCL", "run without --net"
        )
    hosts_by_name: dict[str, list[str]] = defaultdict(list)
    for host, names in control.allgather((platform.node(), tuple(heard))):
        for name in names:
            if host not in hosts_by_name[name]:
                hosts_by_name[name].append(host)
    if hosts_by_name:
        LOG.info("networks in NCCL's log, with their hosts: %s", dict(hosts_by_name))
    asked = BY_NAME[job.net].nccl if job.net else ""
    others = [name for name in hosts_by_name if asked and name.casefold() != asked.casefold()]
    if others:
        used = "; ".join(f"{name} on {_some(hosts_by_name[name])}" for name in others)
        raise NoMeasurement(f"--net {job.net} requests {asked}, but NCCL uses {used}", HINT)
    return ", ".join(sorted(hosts_by_name))


def _some(hosts: Sequence[str]) -> str:
    rest = len(hosts) - MAX_HOSTS
    return ", ".join(hosts[:MAX_HOSTS]) + (f" and {rest} more hosts" if rest > 0 else "")


def unconfirmed(job: Job, network: str) -> str:
    """A note if --net is given and no log confirms it; '' otherwise."""
    if not job.net or network:
        return ""
    level = os.environ.get(nccl_log.LEVEL, "")
    why = f"NCCL_DEBUG={level} hides it in NCCL's log" if level else "NCCL's log does not name it"
    return (
        f"note: --net {job.net} could not be confirmed: {why}; NCCL was set to use no other network"
    )
