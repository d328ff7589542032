"""Asking a host something through the launch agent that starts ranks there: ssh, or what Open MPI is told to use instead."""

import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from busbw.host.process import GONE, stat_fields
from busbw.launch.mpirun import launch_agent, ssh_args

MOST_ASKED = 256  # an agent each, all at once
SSH_FAILED = 255  # ssh's own exit code where it came to no command
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class _Question:
    """An agent on its way, the processes it asks for, and where its answer goes: no pipe, which what it leaves behind may hold open."""

    agent: subprocess.Popen[bytes]
    pids: tuple[int, ...]
    out: BinaryIO


def command(host: str, words: Iterable[str], environ: Mapping[str, str] | None = None) -> list[str]:
    """The line that runs `words` (for a shell) on `host`."""
    environ = os.environ if environ is None else environ
    return [*shlex.split(launch_agent(environ)), *shlex.split(ssh_args(environ)), host, *words]


def states(pids: Mapping[str, Iterable[int]], limit_s: float) -> dict[str, dict[int, str] | None]:
    """State letters of processes, GONE for those that are not there, by host and pid; `limit_s` seconds for all hosts together.

    None for a host that gives no answer in time or that ssh does not reach; {} for one that cannot be asked: no such program, another
    error over there, or too many hosts before it.
    """
    deadline = time.monotonic() + limit_s
    found: dict[str, dict[int, str] | None] = {host: {} for host in pids}
    asked = {host: question for host in list(pids)[:MOST_ASKED] if (question := _ask(host, tuple(pids[host])))}
    while time.monotonic() < deadline and any(question.agent.poll() is None for question in asked.values()):
        time.sleep(_POLL_S)
    return found | {host: _answer(question) for host, question in asked.items()}


def _ask(host: str, pids: tuple[int, ...]) -> _Question | None:
    loop = f"for p in {' '.join(map(str, pids))}; do cat /proc/$p/stat 2>/dev/null || echo $p gone; done"
    line = command(host, [f"sh -c {shlex.quote(loop)}"])  # the login shell may be csh or fish
    out = os.fdopen(os.memfd_create("states"), "w+b")
    try:
        agent = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
    except OSError:
        out.close()
        return None
    return _Question(agent, pids, out)


def _answer(question: _Question) -> dict[int, str] | None:
    agent = question.agent
    with question.out as out:
        if agent.poll() is None:
            agent.kill()
            agent.wait()
            return None
        if agent.returncode:
            return None if agent.returncode == SSH_FAILED else {}
        out.seek(0)
        text = out.read().decode(errors="replace")
    found: dict[int, str] = dict.fromkeys(question.pids, GONE)
    for line in text.splitlines():
        pid, fields = line.partition(" ")[0], stat_fields(line)
        if pid.isdigit() and fields and int(pid) in found:
            found[int(pid)] = fields[0]
    return found
