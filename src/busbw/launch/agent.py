"""Asks a host for process states through the launch agent: ssh, or the agent that Open MPI is configured to use."""

import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from busbw.host.process import GONE, stat_fields
from busbw.launch.mpirun import launch_agent, ssh_args

MAX_ASKED = 256  # hosts; one agent process each, all in parallel
SSH_FAILED = 255  # ssh's exit code if it could not run the command
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class _Question:
    """A running agent. `out` is a file, not a pipe: processes that the agent leaves behind could keep a pipe open."""

    agent: subprocess.Popen[bytes]
    pids: tuple[int, ...]
    out: BinaryIO


def command(host: str, words: Iterable[str], environ: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs the shell words `words` on `host`."""
    environ = os.environ if environ is None else environ
    return [*shlex.split(launch_agent(environ)), *shlex.split(ssh_args(environ)), host, *words]


def states(pids: Mapping[str, Iterable[int]], limit_s: float) -> dict[str, dict[int, str] | None]:
    """State letters of processes by host and pid, GONE for those that do not exist. Takes at most `limit_s` seconds for all hosts.

    None for a host that does not answer in time or that ssh cannot reach. {} for a host that was not asked (more than MAX_ASKED hosts,
    no agent program) or whose shell failed.
    """
    deadline = time.monotonic() + limit_s
    found: dict[str, dict[int, str] | None] = {host: {} for host in pids}
    asked = {host: question for host in list(pids)[:MAX_ASKED] if (question := _ask(host, tuple(pids[host])))}
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
        if pid.isdecimal() and fields and int(pid) in found:
            found[int(pid)] = fields[0]
    return found
