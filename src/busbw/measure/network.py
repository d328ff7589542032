"""Which network NCCL should use, and which one its log names."""

import logging
import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.host_ranges import listed
from busbw.core.networks import BY_NAME, THREADS_VARIABLE, blocks, channels, is_network_chosen
from busbw.core.result import EngineLibrary
from busbw.engines import nccl_log
from busbw.engines.registry import engine, refuse_network
from busbw.host import net_plugin
from busbw.launch.control import Control
from busbw.measure.job import Job

LOG = logging.getLogger(__name__)

HINT = (
    "NCCL_DEBUG=INFO busbw run ...   (the reason), and on that host busbw run --net busbw"
    " --print-env   (whether the plugin loads)"
)


@contextmanager
def starting(job: Job, control: Control, *, stay: bool = False) -> Iterator[nccl_log.Log]:
    """Around the start of an engine: set this process' NCCL variables for --net, and read NCCL's
    log meanwhile; with `stay` also afterwards, until the caller closes it.

    Collective. UsageError for an engine without NCCL. NoMeasurement if the plugin is not on this
    host, or NCCL does not start with that network.
    """
    refuse_network(job.net, job.engine)
    os.environ.update(net_plugin.variables(job.net))
    if job.net and BY_NAME[job.net].plugin:
        os.environ.update(_blocks(job, control))
    if not engine(job.engine).nccl:
        yield nccl_log.empty_log()
        return
    with nccl_log.listening(stay=stay) as log:
        try:
            yield log
        except (NoMeasurement, RuntimeError) as error:  # PyTorch's errors are RuntimeErrors
            if not job.net:
                raise
            raise NoMeasurement(
                f"{error} (with --net {job.net} NCCL uses no other network)", HINT
            ) from error


def _blocks(job: Job, control: Control) -> dict[str, str]:
    """The variables for NCCL's channels, equal on all ranks; none if the user has set one.

    They suit the fastest network of any host. Collective.
    """
    local = None if is_network_chosen(os.environ) else channels(net_plugin.rate(os.environ))
    by_process = control.allgather(
        (local, platform.node(), job.gpus_per_process, os.environ.get(THREADS_VARIABLE))
    )
    numbers, hosts, gpus, threads = zip(*by_process, strict=True)
    if None in numbers:
        return {}
    one_gpu_per_host = len(set(hosts)) == sum(gpus)
    return blocks(max(numbers), narrow=one_gpu_per_host and not any(threads))


def agreed(job: Job, control: Control, library: EngineLibrary, logged: Sequence[str]) -> str:
    """The network of all processes; '' if no log of NCCL names one.

    `logged` are the networks that the log of this process names. Collective. NoMeasurement if a
    process uses another network than --net: the measurement would be of the wrong one. UsageError
    if the engine's `library` is not NCCL.
    """
    if job.net and not library.nccl:
        raise UsageError(
            f"--net {job.net}: PyTorch found no GPU and does not use NCCL", "run without --net"
        )
    hosts_by_name: dict[str, list[str]] = defaultdict(list)
    for host, names in control.allgather((platform.node(), tuple(logged))):
        for name in names:
            if host not in hosts_by_name[name]:
                hosts_by_name[name].append(host)
    if hosts_by_name:
        LOG.info("networks in NCCL's log, with their hosts: %s", dict(hosts_by_name))
    requested = BY_NAME[job.net].nccl if job.net else ""
    others = [
        name for name in hosts_by_name if requested and name.casefold() != requested.casefold()
    ]
    if others:
        used = "; ".join(f"{name} on {listed(hosts_by_name[name])}" for name in others)
        raise NoMeasurement(f"--net {job.net} requests {requested}, but NCCL uses {used}", HINT)
    return ", ".join(sorted(hosts_by_name))


def unconfirmed(job: Job, network: str) -> str:
    """A note if --net is given and no log confirms it; '' otherwise."""
    if not job.net or network:
        return ""
    level = os.environ.get(nccl_log.LEVEL, "")
    why = f"NCCL_DEBUG={level} hides it in NCCL's log" if level else "NCCL's log does not name it"
    return (
        f"note: --net {job.net} could not be confirmed: {why}; NCCL was set to use no other network"
    )
