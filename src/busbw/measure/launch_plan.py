"""The launcher's command line for a job: it follows from the engine, the number of ranks, and
the hosts.
"""

import logging
import os
import shlex
from dataclasses import dataclass

import msgspec

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.program import module_command
from busbw.core.sweep import roots
from busbw.engines.registry import (
    AUTO,
    EngineRow,
    choose_for,
    cpu_ranks,
    engine,
    gpu_count,
    refuse_network,
    torch_gpus,
)
from busbw.host import net_plugin
from busbw.launch import hosts as torchrun
from busbw.launch import mpirun, slurm
from busbw.launch.hosts import LaunchHost, share
from busbw.measure.job import Job, SweepJob, encode, with_timeout
from busbw.measure.target import LaunchTarget, forwarded

LOG = logging.getLogger(__name__)
RANKS_PER_CORE = 16
PROGRAM = "busbw.measure.rank"


class TooFewGpus(NoMeasurement):
    """More GPUs are requested than present; the message is that of nccl-tests."""

    def __init__(self, asked: int, present: int) -> None:
        message = f"Invalid number of GPUs: {asked} requested but only {present} were found."
        super().__init__(
            message, f"ask for at most {present}, or name more --hosts", options=["hosts"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherCommand:
    """A prepared start: the launcher's command line, the job for the ranks, and their hosts with
    slots.
    """

    argv: list[str]
    job: Job
    hosts: tuple[LaunchHost, ...] = ()
    ifname: str = ""
    note: str = ""


def launcher_command(job: Job, where: LaunchTarget) -> LauncherCommand:
    """The launch; UsageError if job and `where` contradict each other."""
    where.check()
    if where.step:
        return _by_slurm(job, where, where.step)
    named = where.named()
    row, note = choose_for(job.engine, elsewhere=bool(named))
    if row:
        refuse_network(job.net, row.name)
    if named:
        needs_slots = where.ranks is None and not all(host.slots for host in named)
        named = share(named, where.ranks, _slots_per_host(row) if needs_slots else 1)
    ranks = sum(host.slots for host in named) or (_local_ranks(row, job, where) if row else 1)
    prepared = _prepare(job, row.name if row else AUTO, ranks)
    # Local ranks inherit the environment; ranks on other hosts get the variables that affect
    # communication.
    argv = _command(row, prepared, ranks, named, where.ifname)
    hosts = ", ".join(f"{host.name} ({host.slots} ranks)" for host in named) or "this host"
    LOG.info("%d ranks on %s: %s", ranks, hosts, shlex.join(argv))
    return LauncherCommand(
        argv=argv,
        job=prepared,
        hosts=named,
        ifname=where.ifname,
        note=f"note: {note}" if note else "",
    )


def _slots_per_host(row: EngineRow | None) -> int:
    """The slots of a host that names none: the GPUs that the engine reaches here, or 1."""
    candidates = ("nccl", "torch") if row is None else (row.name,)
    if "nccl" in candidates and engine("nccl").availability() is None:
        return gpu_count()
    if "torch" in candidates and engine("torch").availability() is None:
        return torch_gpus() or 1
    return 1


def _by_slurm(job: Job, where: LaunchTarget, requested: slurm.JobStep) -> LauncherCommand:
    """A launch by srun. The ranks choose the engine for `auto`: a login node has no GPUs."""
    if job.engine != AUTO:
        refuse_network(job.net, job.engine)
    step = slurm.with_defaults(requested, os.environ)
    prepared = _prepare(job, job.engine, step.ranks or 0)
    argv = slurm.command(slurm.find(), program(prepared), step, where.ifname, os.environ)
    LOG.info("by Slurm: %s", shlex.join(argv))
    return LauncherCommand(argv=argv, job=prepared, ifname=where.ifname)


def _prepare(job: Job, engine_name: str, ranks: int) -> Job:
    """The job with engine, ranks and limit; UsageError for a root that none of the ranks has."""
    if isinstance(job, SweepJob):
        roots(job.sweep, ranks or 1)
    return with_timeout(msgspec.structs.replace(job, engine=engine_name, ranks=ranks))


def _local_ranks(row: EngineRow, job: Job, where: LaunchTarget) -> int:
    """Ranks on this machine: as requested, one per GPU, or two on CPUs.

    UsageError or TooFewGpus for too many.
    """
    net_plugin.variables(job.net)  # reports a missing plugin before ranks are started
    if where.ranks:
        ranks = where.ranks
    elif isinstance(job, SweepJob) and job.compat:
        ranks = job.sweep.nthreads * job.sweep.ngpus
    elif row.name == "nccl":
        ranks = gpu_count()
    else:
        ranks = (torch_gpus() if row.name == "torch" else 0) or cpu_ranks()
    if row.name == "nccl" and ranks > gpu_count():
        raise TooFewGpus(ranks, gpu_count())
    if row.name != "nccl" and ranks > RANKS_PER_CORE * (os.cpu_count() or 1):
        raise UsageError(
            f"--ranks {ranks}: more than {RANKS_PER_CORE} ranks per core of this machine",
            f"--ranks {RANKS_PER_CORE * (os.cpu_count() or 1)} or fewer; iterations are --iters",
            options=["ranks"],
        )
    return ranks


def program(job: Job) -> list[str]:
    return module_command(PROGRAM, encode(job))


def _command(
    row: EngineRow | None, job: Job, ranks: int, named: tuple[LaunchHost, ...], ifname: str
) -> list[str]:
    """mpirun's command line, or torchrun's for local PyTorch ranks without MPI."""
    try:
        launcher = mpirun.find()
    except NoMeasurement:
        if named or row is None or row.name != "torch":
            raise
        return torchrun.command(program(job), ranks)
    return mpirun.command(
        launcher, program(job), ranks, named, ifname, forwarded() if named else {}
    )
