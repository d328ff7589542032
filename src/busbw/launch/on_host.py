"""Examines what there is of a job on each host, and ends it there.

`python -m busbw.launch.on_host` answers the request on its stdin. It is started through the launch
agent, so that a host answers even if its daemon of Open MPI, or its network for the job, fails.
"""

import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from busbw.core import program
from busbw.core.errors import UsageError
from busbw.host import kernel_log, process
from busbw.host.os_queries import free_space
from busbw.launch import remote
from busbw.launch.cleanup import SHARED, Cleanup, temporary, variables
from busbw.launch.environment import detect
from busbw.launch.remote_ps import SSH_FAILED

RANK_PROGRAM = "busbw.measure.rank"
MIN_FREE_BYTES = 1 << 20  # bytes; with less, a file system is full
MIN_SHARED_BYTES = 32 << 20  # bytes that each rank of Open MPI or NCCL needs


class JobRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request about a job."""

    marker: str  # of the job
    launcher: int = 0  # the process of its mpirun, on `node`
    node: str = ""
    pids: list[int] = []  # ranks whose state is asked for too
    end: bool = False  # kill the job's processes, and remove its files and `folders`
    folders: list[str] = []
    limit_s: int = 10


class JobProcess(msgspec.Struct, frozen=True):
    """A process of the job: its name and state letter, and its rank (-1 if it is no rank)."""

    pid: int
    name: str
    state: str
    rank: int = -1


class HostJobState(msgspec.Struct, omit_defaults=True):
    """The answer of a host called `node`."""

    node: str
    running: list[JobProcess] = []
    states: dict[int, str] = {}  # state letters of the requested pids
    full: list[str] = []  # file systems without room
    # processes that the kernel has killed for lack of memory since its start
    oom_kills: int = kernel_log.UNKNOWN
    killed: list[int] = []  # the requested pids among them
    unsure: list[int] = []  # the requested pids of which that is not known


def examine(request: JobRequest) -> HostJobState:
    """The answer of this host. The job is ended if the request asks for that."""
    job = Cleanup(request.marker, request.launcher, request.node)
    answer = HostJobState(
        os.uname().nodename, oom_kills=kernel_log.count(), full=list_full_file_systems()
    )
    answer.running = [
        JobProcess(pid, process.name(pid), process.state(pid), _rank(pid)) for pid in job.pids()
    ]
    answer.states = {pid: process.state(pid) for pid in request.pids}
    ended = [pid for pid, state in answer.states.items() if state in process.ENDED]
    logged = {pid: kernel_log.killed(pid) for pid in ended}
    answer.killed = [pid for pid, killed in logged.items() if killed]
    answer.unsure = [pid for pid, killed in logged.items() if killed is None]
    if request.end:
        for folder in request.folders:
            job.record_folder(folder)
        job.kill_remaining()
    return answer


def list_full_file_systems() -> list[str]:
    """A sentence on each file system that ranks need and that has no room."""
    messages = []
    for folder, needed in ((SHARED, MIN_SHARED_BYTES), (temporary(), MIN_FREE_BYTES)):
        try:
            space = process.answer(str(folder), partial(free_space, str(folder)))
        except OSError:
            continue
        if space["free"] < needed:
            free, total = _size_text(space["free"]), _size_text(space["total"])
            messages.append(f"{folder} has no room ({free} of {total} are free)")
    return messages


def list_limits() -> list[str]:
    """What a user's limits on this host allow to a process, if that may be too little."""
    file_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    messages = []
    if 0 <= file_bytes < MIN_SHARED_BYTES:  # INFINITY is -1
        messages.append(f"a file may have {_size_text(file_bytes)} at most (ulimit -f)")
    cpu_s, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if cpu_s >= 0:
        messages.append(f"a process may use {cpu_s} s of CPU time (ulimit -t)")
    return messages


def _size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _rank(pid: int) -> int:
    """The rank of a process; -1 for a launcher, a daemon or a child of a rank."""
    try:
        member = detect(variables(pid)) if RANK_PROGRAM in process.command(pid) else None
    except UsageError:
        return -1
    return member.rank if member else -1


@dataclass(frozen=True, slots=True)
class HostAnswers:
    """What several hosts answered, by the names under which they were asked.

    `unreachable` are hosts that did not answer, or that ssh cannot reach. A host that answered
    anything but a `HostJobState` is in neither.
    """

    states: dict[str, HostJobState]
    unreachable: frozenset[str] = frozenset()


def ask_hosts(requests: Mapping[str, JobRequest], limit_s: float) -> HostAnswers:
    """The answers of all hosts within `limit_s` seconds."""
    words = program.module_command("busbw.launch.on_host")
    inputs = {host: msgspec.json.encode(request) for host, request in requests.items()}
    states: dict[str, HostJobState] = {}
    unreachable: set[str] = set()
    for done in remote.run_each(dict.fromkeys(requests, words), limit_s, inputs, together=True):
        if done.code in (None, SSH_FAILED):
            unreachable.add(done.host)
            continue
        try:
            states[done.host] = done.answer(HostJobState)
        except ValueError:
            continue
    return HostAnswers(states, frozenset(unreachable))


def remote_hosts(hosts: Sequence[str]) -> list[str]:
    """The hosts that are not this machine, each once."""
    return [host for host in dict.fromkeys(hosts) if not remote.is_local(host)]


def main() -> None:
    """Answer the request on stdin."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=JobRequest)
    signal.alarm(request.limit_s)  # the agent may be gone without this process
    sys.stdout.write(msgspec.json.encode(examine(request)).decode() + "\n")


if __name__ == "__main__":
    main()
