"""Runs one command on several hosts at once through the launch agent.

The agent is ssh, or the one that Open MPI is configured to use.
"""

import contextlib
import os
import pwd
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from busbw.core import program
from busbw.host.addresses import local
from busbw.host.process import allow_open_files, die_with_parent
from busbw.launch import remote_ps
from busbw.launch.hosts import is_host, without_user

Answer = TypeVar("Answer")
# Agents at once: sshd refuses more unauthenticated connections than MaxStartups, and each takes
# memory.
MAX_AGENTS = 64
_POLL_S = 0.02
_KILLED_S = 1.0  # for a killed process to end
_ERROR_BYTES = 4096  # the last of what a host prints to stderr
_ANSWER_BYTES = 128 << 20  # at most: answers are kept in memory


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command did on a host.

    `code` is its exit code, 255 also if ssh failed. It is None if the command was killed; `killed`
    says why.
    """

    host: str
    code: int | None
    out: bytes
    error: str
    killed: str = ""

    @property
    def problem(self) -> str:
        """Why there is no answer; '' if there is one."""
        if self.code is None:
            return self.killed
        if not self.code:
            return ""
        lines = [line for line in self.error.splitlines() if line.strip()]
        return f"exit code {self.code}: {lines[-1]}" if lines else f"exit code {self.code}"

    def answer(self, kind: type[Answer]) -> Answer:
        """The JSON in the last line of stdout, of the type `kind`; ValueError if it is not.

        A login shell may greet before it.
        """
        return msgspec.json.decode(self.out.strip().rpartition(b"\n")[2], type=kind)


@dataclass(slots=True)
class _RunningCommand:
    host: str
    process: subprocess.Popen[bytes]
    # Files, not pipes: processes that the agent leaves behind could keep a pipe open.
    out: BinaryIO
    error: BinaryIO
    deadline: float

    def kill_reason(self) -> str:
        """Why the command has to be killed; '' if it may go on."""
        if time.monotonic() >= self.deadline:
            return "no answer within the time limit"
        size = max(os.fstat(file.fileno()).st_size for file in (self.out, self.error))
        return f"an answer of more than {_ANSWER_BYTES >> 20} MiB" if size > _ANSWER_BYTES else ""


def busbw(*arguments: str) -> list[str]:
    """The words that run a busbw command as this process was started; see core.program."""
    return program.module_command("busbw", *arguments)


def is_local(host: str) -> bool:
    """Whether a name or address is this machine, and the user before an `@` this one."""
    user = host.removesuffix(without_user(host)).removesuffix("@")
    if user and user != _own_name():
        return False
    host = without_user(host)
    names = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    return host in names or host in {str(address.ip) for address in local().values() if address}


def _own_name() -> str:
    """The name of this process' user; '' for one without an entry, as in some containers."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def command(host: str, words: Iterable[str], environ: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs `words` on `host`.

    This machine needs no agent; on another host the agent's shell runs them.
    """
    return list(words) if is_local(host) else remote_ps.command(host, [shlex.join(words)], environ)


def run(
    hosts: Sequence[str], words: Sequence[str], limit_s: float, stdin: bytes = b""
) -> list[CommandResult]:
    """Run `words` on all hosts with the bytes `stdin` as input; as `run_each`."""
    return run_each(dict.fromkeys(hosts, words), limit_s, dict.fromkeys(hosts, stdin))


def run_each(
    words: Mapping[str, Sequence[str]],
    limit_s: float,
    inputs: Mapping[str, bytes | Path],
    *,
    together: bool = False,
) -> list[CommandResult]:
    """Run the words of each host on it, with the host's `inputs`, bytes or a file, on stdin.

    MAX_AGENTS run at a time, and each has `limit_s` seconds. With `together` all run at the same
    time, and the limit is one for all. Commands that have not ended then are killed. The results
    have the order of the hosts.
    """
    waiting, running, done = list(words), dict[str, _RunningCommand](), dict[str, CommandResult]()
    limit = len(words) if together else MAX_AGENTS
    if together:
        allow_open_files()  # two for each host
    end = time.monotonic() + limit_s
    try:
        while waiting or running:
            while waiting and len(running) < limit:
                host = waiting.pop(0)
                deadline = end if together else time.monotonic() + limit_s
                started = _start(host, words[host], inputs[host], deadline)
                if isinstance(started, CommandResult):
                    done[host] = started
                else:
                    running[host] = started
            for host, agent in list(running.items()):
                reason = agent.kill_reason()
                if agent.process.poll() is not None or reason:
                    done[host] = _end(agent, reason)
                    del running[host]
            time.sleep(_POLL_S if running else 0)
    finally:
        for agent in running.values():
            _end(agent)
    return [done[host] for host in words]


def _start(
    host: str, words: Sequence[str], given: bytes | Path, deadline: float
) -> _RunningCommand | CommandResult:
    if not is_host(host):  # a name that a program reported
        return CommandResult(host, 127, b"", "this is not a host name")
    line = command(host, words)
    out = os.fdopen(os.memfd_create("out"), "w+b")
    error = os.fdopen(os.memfd_create("error"), "w+b")
    try:
        with given.open("rb") if isinstance(given, Path) else _file_of(given) as stdin:
            # A session of its own: what the agent started ends with it.
            process = subprocess.Popen(
                line,
                stdin=stdin,
                stdout=out,
                stderr=error,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
    except OSError as failure:
        out.close()
        error.close()
        return CommandResult(host, 127, b"", f"{line[0]}: {failure.strerror}")
    return _RunningCommand(host, process, out, error, deadline)


def _file_of(data: bytes) -> BinaryIO:
    file = os.fdopen(os.memfd_create("in"), "w+b")
    file.write(data)
    file.seek(0)
    return file


def _end(agent: _RunningCommand, reason: str = "") -> CommandResult:
    """What the command did; it is killed, for the `reason`, if it still runs."""
    code = agent.process.poll()
    with agent.out, agent.error:
        if code is None:
            kill(agent.process)
            return CommandResult(agent.host, None, b"", last_bytes(agent.error), reason)
        agent.out.seek(0)
        return CommandResult(agent.host, code, agent.out.read(), last_bytes(agent.error))


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that has a session of its own, and what it started there.

    A process that hangs in the kernel is left to it.
    """
    os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILLED_S)


def last_bytes(errors: BinaryIO) -> str:
    """The end of what a host printed to stderr: a greeting of any length may stand before it."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _ERROR_BYTES))
    return errors.read().decode(errors="replace")
