"""Runs one command on several hosts at once through the launch agent: ssh, or the agent that Open MPI is configured to use."""

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from busbw.host.addresses import local
from busbw.launch import agent
from busbw.launch.hosts import is_host

MOST = 64  # agents at once: sshd refuses more unauthenticated connections than MaxStartups, and each takes memory
_POLL_S = 0.02
_ERROR_BYTES = 4096  # of what a host prints to stderr


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did on a host. `code` is its exit code, 255 also if ssh failed; None: the time limit was reached."""

    host: str
    code: int | None
    out: bytes
    error: str

    @property
    def problem(self) -> str:
        """Why there is no answer; '' if there is one."""
        last = next((line for line in reversed(self.error.splitlines()) if line.strip()), "")
        if self.code is None:
            return "no answer within the time limit"
        return f"exit code {self.code}{f': {last}' if last else ''}" if self.code else ""


@dataclass(slots=True)
class _Running:
    host: str
    process: subprocess.Popen[bytes]
    out: BinaryIO  # a file, not a pipe: processes that the agent leaves behind could keep a pipe open
    error: BinaryIO


def busbw(*arguments: str) -> list[str]:
    """The words that run a busbw command with this installation, which other hosts have at the same path."""
    return [sys.executable, "-m", "busbw", *arguments]


def is_local(host: str) -> bool:
    """Whether a name or address is this machine."""
    own = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    return host in own or host in {str(address.ip) for address in local().values() if address}


def command(host: str, words: Iterable[str], environ: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs `words` on `host`: directly on this machine, else through the agent's shell."""
    return list(words) if is_local(host) else agent.command(host, [shlex.join(words)], environ)


def run(hosts: Sequence[str], words: Sequence[str], limit_s: float, given: bytes = b"") -> list[Done]:
    """Run `words` on all hosts with `given` on stdin; as `run_each`."""
    return run_each(dict.fromkeys(hosts, words), limit_s, dict.fromkeys(hosts, given))


def run_each(words: Mapping[str, Sequence[str]], limit_s: float, given: Mapping[str, bytes]) -> list[Done]:
    """Run the words of each host on it, MOST at a time; each has `limit_s` seconds and is killed then. In the order of the hosts.

    `given` is what each command reads from its stdin.
    """
    hosts = list(words)
    waiting, running, done = list(hosts), dict[str, tuple[_Running, float]](), dict[str, Done]()
    try:
        while waiting or running:
            while waiting and len(running) < MOST:
                host = waiting.pop(0)
                started = _start(host, words[host], given[host])
                if isinstance(started, Done):
                    done[host] = started
                else:
                    running[host] = started, time.monotonic() + limit_s
            for host, (one, deadline) in list(running.items()):
                if one.process.poll() is not None or time.monotonic() >= deadline:
                    done[host] = _end(one)
                    del running[host]
            time.sleep(_POLL_S if running else 0)
    finally:
        for one, _ in running.values():
            _end(one)
    return [done[host] for host in hosts]


def _start(host: str, words: Sequence[str], given: bytes) -> _Running | Done:
    if not is_host(host):  # a name that a program reported
        return Done(host, 127, b"", "this is not a host name")
    line = command(host, words)
    out, error = (os.fdopen(os.memfd_create(name), "w+b") for name in ("out", "error"))
    try:
        with os.fdopen(os.memfd_create("in"), "w+b") as said:
            said.write(given)
            said.seek(0)
            process = subprocess.Popen(line, stdin=said, stdout=out, stderr=error)
    except OSError as failure:
        out.close()
        error.close()
        return Done(host, 127, b"", f"{line[0]}: {failure.strerror}")
    return _Running(host, process, out, error)


def _end(one: _Running) -> Done:
    code = one.process.poll()
    if code is None:
        one.process.kill()
        one.process.wait()
    with one.out, one.error:
        one.out.seek(0)
        one.error.seek(0)
        return Done(one.host, code, one.out.read(), one.error.read(_ERROR_BYTES).decode(errors="replace"))
