"""What there is of a job on each host, and its end there.

`python -m busbw.launch.on_host` answers the request on its stdin. It is started through the launch
agent, so that a host can be asked whose daemon of Open MPI, or whose network for the job, fails.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from busbw.core.errors import UsageError
from busbw.host import kernel_log, process
from busbw.host.os_queries import room
from busbw.launch import remote
from busbw.launch.cleanup import SHARED, Cleanup, temporary, variables
from busbw.launch.environment import detect
from busbw.launch.remote_ps import SSH_FAILED

RANK_PROGRAM = "busbw.measure.rank"
LEAST_FREE = 1 << 20  # bytes; with less, a file system is full
LEAST_SHARED = 32 << 20  # bytes that Open MPI's or NCCL's ranks of one host need for each of them


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request about the job with `marker`, whose mpirun is process `launcher` on `node`.

    `pids` are ranks whose state is wanted too. With `end` the job's processes are killed, and its
    files removed, also `folders`.
    """

    marker: str
    launcher: int = 0
    node: str = ""
    pids: list[int] = []
    end: bool = False
    folders: list[str] = []
    limit_s: int = 10


class Running(msgspec.Struct, frozen=True):
    """A process of the job: its name and state letter, and the rank (-1: none)."""

    pid: int
    name: str
    state: str
    rank: int = -1


class OnHost(msgspec.Struct, omit_defaults=True):
    """The answer of a host called `node`.

    `states` has the requested pids; `full` the file systems without room.

    `oom_kills` is the number of processes that the kernel has killed since its start as memory ran
    out, `killed` which of the pids.
    """

    node: str
    running: list[Running] = []
    states: dict[int, str] = {}
    full: list[str] = []
    oom_kills: int = kernel_log.UNKNOWN
    killed: list[int] = []


def look(ask: Ask) -> OnHost:
    """The answer for this host, after the end if that was asked for."""
    job = Cleanup(ask.marker, ask.launcher, ask.node)
    found = OnHost(os.uname().nodename, oom_kills=kernel_log.count(), full=full())
    found.running = [
        Running(pid, process.name(pid), process.state(pid), _rank(pid)) for pid in job.pids()
    ]
    found.states = {pid: process.state(pid) for pid in ask.pids}
    found.killed = [
        pid for pid in ask.pids if found.states[pid] in process.ENDED and kernel_log.killed(pid)
    ]
    if ask.end:
        for folder in ask.folders:
            job.record_folder(folder)
        job.kill_remaining()
    return found


def full() -> list[str]:
    """The file systems that ranks need and that have no room, with what is free."""
    found = []
    for folder, least in ((SHARED, LEAST_SHARED), (temporary(), LEAST_FREE)):
        try:
            seen = process.answer(str(folder), partial(room, str(folder)))
        except OSError:
            continue
        if seen["free"] < least:
            found.append(
                f"{folder} has no room ({_size(seen['free'])} of {_size(seen['total'])} are free)"
            )
    return found


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _rank(pid: int) -> int:
    """The rank that this process is; -1 for a launcher, a daemon or a child of a rank."""
    try:
        member = detect(variables(pid)) if RANK_PROGRAM in process.command(pid) else None
    except UsageError:
        return -1
    return member.rank if member else -1


def ask(asks: Mapping[str, Ask], limit_s: float) -> dict[str, OnHost | None]:
    """The answers of hosts, within `limit_s` seconds for all.

    None for a host that does not answer or that ssh cannot reach.

    A host that answers something else is left out.
    """
    words = [sys.executable, "-m", "busbw.launch.on_host"]
    given = {host: msgspec.json.encode(one) for host, one in asks.items()}
    found: dict[str, OnHost | None] = {}
    for done in remote.run_each(dict.fromkeys(asks, words), limit_s, given, together=True):
        if done.code in (None, SSH_FAILED):
            found[done.host] = None
            continue
        try:
            found[done.host] = done.answer(OnHost)
        except ValueError:
            continue
    return found


def away(hosts: Sequence[str]) -> list[str]:
    """Those of the hosts that are not this machine, each once."""
    return [host for host in dict.fromkeys(hosts) if not remote.is_local(host)]


def main() -> None:
    """Answer the request on stdin."""
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Ask)
    signal.alarm(asked.limit_s)  # the agent may be gone without this process
    sys.stdout.write(msgspec.json.encode(look(asked)).decode() + "\n")


if __name__ == "__main__":
    main()
