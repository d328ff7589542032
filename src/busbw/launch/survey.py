"""Asks the hosts of a job what became of its processes, and ends what is left of them there."""

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
from busbw.launch.on_host import Ask, OnHost

MAX_ASKED = 256  # hosts; one agent process each
_SHOWN = {"prterun": "mpirun"}  # the name of the program that the user knows


@dataclass(slots=True)
class Survey:
    """What the hosts of a job know: `states` by rank, `found` ranks that have not reported, stopped
    `helpers` that start and end ranks.

    `unreachable` are the hosts that gave no answer, under the user's names. `full` are file systems
    without room, by host.
    """

    states: dict[int, str] = field(default_factory=dict)
    found: dict[int, Here] = field(default_factory=dict)
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
    """Ask this host and, for `limit_s` seconds, those of `hosts` (the user's names, by rank).

    `local` are pids of this host's ranks.
    """
    own = on_host.look(_ask(job, local.values()))
    names = on_host.away(hosts)[:MAX_ASKED]
    of_rank = {rank: hosts[rank] for rank in here if rank < len(hosts) and hosts[rank] in names}
    pids = {
        name: [here[rank].pid for rank, host in of_rank.items() if host == name] for name in names
    }
    answers = on_host.ask({name: _ask(job, pids[name]) for name in names}, limit_s)
    result = Survey(
        unreachable=frozenset(name for name, answer in answers.items() if answer is None)
    )
    for answer in (own, *answers.values()):
        if answer is not None:
            _add(result, answer, here)
    for rank, pid in local.items():
        result.states[rank] = own.states[pid]
    for rank, name in of_rank.items():
        answer = answers.get(name)
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
    """`survey` in a thread, from what is known now."""
    future: Future[Survey] = Future()
    here, local = dict(here), dict(local)

    def work() -> None:
        try:
            future.set_result(survey(job, here, local, hosts, limit_s))
        except BaseException as error:  # noqa: BLE001 - raised by the one who waits
            future.set_exception(error)

    Thread(target=work, name="survey", daemon=True).start()
    return future


def _ask(job: Cleanup, pids: Iterable[int]) -> Ask:
    return Ask(job.marker, job.launcher, job.node, list(pids))


def _add(result: Survey, answer: OnHost, here: Mapping[int, Here]) -> None:
    for one in answer.running:
        if one.rank >= 0 and one.rank not in here:
            result.found[one.rank] = Here(one.rank, answer.node, one.pid)
            result.states[one.rank] = one.state
        elif one.rank < 0 and one.state in process.STOPPED:
            result.helpers.append(
                Helper(answer.node, _SHOWN.get(one.name, one.name), one.pid, one.name in DAEMONS)
            )
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
    names = [host for host in on_host.away(hosts)[:MAX_ASKED] if host not in silent]
    folders: dict[str, set[str]] = {name: set() for name in names}
    for rank, one in here.items():
        if rank < len(hosts) and hosts[rank] in folders and one.folder:
            folders[hosts[rank]].add(one.folder)
    asks = {
        name: Ask(job.marker, job.launcher, job.node, end=True, folders=sorted(found))
        for name, found in folders.items()
    }
    on_host.ask(asks, limit_s)


def ran_out_of_memory(one: Here, host: str, limit_s: float) -> bool:
    """Whether the kernel killed this rank, which SIGKILL has ended, because memory ran out.

    `host` is the user's name of its host.
    """
    ask = Ask(marker="none", pids=[one.pid])
    if one.host == os.uname().nodename:
        answer: OnHost | None = on_host.look(ask)
    else:
        answer = on_host.ask({host: ask}, limit_s).get(host) if host else None
    if answer is None:
        return False
    return one.pid in answer.killed or (one.oom_kills >= 0 and answer.oom_kills > one.oom_kills)
