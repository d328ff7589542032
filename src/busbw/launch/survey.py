"""Asks the hosts of a job about the state of its processes, and ends those that are left there."""

import os
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Thread

from busbw.core.rank_messages import Here
from busbw.host import process
from busbw.launch import on_host
from busbw.launch.cleanup import DAEMONS, Cleanup
from busbw.launch.diagnosis import Helper
from busbw.launch.on_host import HostJobState, JobRequest

MAX_ASKED = 256  # hosts; one agent process each
_SHOWN = {"prterun": "mpirun"}  # the name of the program that the user knows


@dataclass(slots=True)
class Survey:
    """What the hosts of a job know.

    `states` are state letters by rank, `unreported` the ranks that run but have not reported their
    start, and `helpers` the stopped processes that start and end ranks. `unreachable` are the hosts
    that gave no answer, under the user's names. `full` are file systems without room, by host.
    """

    states: dict[int, str] = field(default_factory=dict)
    unreported: dict[int, Here] = field(default_factory=dict)
    helpers: list[Helper] = field(default_factory=list)
    unreachable: frozenset[str] = frozenset()
    full: dict[str, list[str]] = field(default_factory=dict)


def survey(
    job: Cleanup,
    here: Mapping[int, Here],
    local: Mapping[int, int],
    hosts: tuple[str, ...],
    limit_s: float,
) -> Survey:
    """Ask this host and, for up to `limit_s` seconds, the other hosts of the job.

    `hosts` are the user's names of the hosts in order of rank, `local` the pids of this host's
    ranks by rank, and `here` the ranks that reported their start.
    """
    this_host = on_host.examine(_request(job, local.values()))
    names = on_host.remote_hosts(hosts)[:MAX_ASKED]
    host_of = {rank: hosts[rank] for rank in here if rank < len(hosts) and hosts[rank] in names}
    pids: dict[str, list[int]] = {name: [] for name in names}
    for rank, name in host_of.items():
        pids[name].append(here[rank].pid)
    answers = on_host.ask_hosts({name: _request(job, pids[name]) for name in names}, limit_s)
    result = Survey(unreachable=answers.unreachable)
    for state in (this_host, *answers.states.values()):
        _add(result, state, here)
    for rank, pid in local.items():
        result.states[rank] = this_host.states[pid]
    for rank, name in host_of.items():
        answer = answers.states.get(name)
        if answer is not None and here[rank].pid in answer.states:
            result.states[rank] = answer.states[here[rank].pid]
    return result


def begin(
    job: Cleanup,
    here: Mapping[int, Here],
    local: Mapping[int, int],
    hosts: tuple[str, ...],
    limit_s: float,
) -> Future[Survey]:
    """Begin a `survey` in a thread, from what is known now."""
    future: Future[Survey] = Future()
    here, local = dict(here), dict(local)

    def work() -> None:
        try:
            future.set_result(survey(job, here, local, hosts, limit_s))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            future.set_exception(error)

    Thread(target=work, name="survey", daemon=True).start()
    return future


def _request(job: Cleanup, pids: Iterable[int]) -> JobRequest:
    return JobRequest(job.marker, job.launcher, job.node, list(pids))


def _add(result: Survey, answer: HostJobState, here: Mapping[int, Here]) -> None:
    """Add the answer of a host to `result`; `here` are the ranks that reported their start."""
    for running in answer.running:
        rank, pid = running.rank, running.pid
        if rank >= 0 and rank not in here:
            result.unreported[rank] = Here(rank, answer.node, pid)
            result.states[rank] = running.state
        elif rank < 0 and running.state in process.STOPPED:
            name = _SHOWN.get(running.name, running.name)
            result.helpers.append(Helper(answer.node, name, pid, running.name in DAEMONS))
    if answer.full:
        result.full[answer.node] = answer.full


def end(
    job: Cleanup,
    here: Mapping[int, Here],
    hosts: tuple[str, ...],
    silent: Collection[str],
    limit_s: float,
) -> None:
    """Kill what is left of the job on other hosts, and remove its files there.

    Hosts that were `silent` before are not asked again.
    """
    names = [host for host in on_host.remote_hosts(hosts)[:MAX_ASKED] if host not in silent]
    folders: dict[str, set[str]] = {name: set() for name in names}
    for rank, report in here.items():
        if rank < len(hosts) and hosts[rank] in folders and report.folder:
            folders[hosts[rank]].add(report.folder)
    requests = {
        name: JobRequest(job.marker, job.launcher, job.node, end=True, folders=sorted(of_host))
        for name, of_host in folders.items()
    }
    on_host.ask_hosts(requests, limit_s)


def memory_kill(rank: Here, host: str, limit_s: float) -> str:
    """What the kernel of its host says of a rank that SIGKILL has ended: that memory ran out, or
    that it perhaps did. '' if it did not.

    `host` is the user's name of its host.
    """
    request = JobRequest(marker="none", pids=[rank.pid])
    if rank.host == os.uname().nodename:
        answer: HostJobState | None = on_host.examine(request)
    else:
        answer = on_host.ask_hosts({host: request}, limit_s).states.get(host) if host else None
    if answer is None:
        return ""
    if rank.pid in answer.killed:
        return "out of memory, so the kernel of that host killed it"
    more_kills = rank.oom_kills >= 0 and answer.oom_kills > rank.oom_kills
    if more_kills and rank.pid in answer.unsure:
        return "perhaps out of memory, as the kernel of that host killed a process meanwhile"
    return ""
