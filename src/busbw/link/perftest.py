"""Runs perftest: a server on one node and a client on the other, with one message size per call.

A test is ended by killing only the process that was started here.
"""

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.core.errors import NoMeasurement
from busbw.host.process import children
from busbw.link import perftest_text
from busbw.link.types import Program

BANDWIDTH, LATENCY = "ib_write_bw", "ib_write_lat"
ITERATIONS = 1000  # of latency
LATENCY_BYTES = 2
MARGIN_S = 1  # at each end of a timed test; perftest demands more than twice the margin
_DETECT_S = 10.0
_BIND = "--bind_source_ip"
_POLL_S = 0.02
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp (include/net/tcp_states.h)
BUILD = (
    "build it with CUDA: ./autogen.sh && ./configure CUDA_H_PATH=/usr/local/cuda/include/cuda.h &&"
    " make"
)


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """One test of one port. Both ends get the same values, since some options must be equal."""

    program: str
    device: str
    device_port: int = 1
    gid_index: int | None = None
    size: int = 1 << 20
    queue_pairs: int = 4
    seconds: float = 2.0
    gpu: int | None = None
    address: str = ""  # of the port: a server listens only there, if its version has the option

    def words(self, port: int, server: str = "") -> list[str]:
        """The command line; for a client, with the address of the `server`."""
        words = [
            self.program,
            "-d",
            self.device,
            "-i",
            str(self.device_port),
            "-p",
            str(port),
            "-s",
            str(self.size),
            "-F",
        ]
        if self.program == BANDWIDTH:
            duration = max(1, round(self.seconds)) + 2 * MARGIN_S
            words += [
                "-q",
                str(self.queue_pairs),
                "-D",
                str(duration),
                "-f",
                str(MARGIN_S),
                "--report_gbits",
            ]
        else:
            words += ["-n", str(ITERATIONS)]
        words += [] if self.gid_index is None else ["-x", str(self.gid_index)]
        words += [] if self.gpu is None else [f"--use_cuda={self.gpu}"]
        words += (
            [f"{_BIND}={self.address}"]
            if self.address and _BIND in _said(self.program, "--help")
            else []
        )
        return words + ([server] if server else [])


@dataclass(slots=True)
class Running:
    """A running program; its output goes to a file, since a pipe could fill up."""

    process: subprocess.Popen[bytes]
    out: Path
    words: list[str]

    def output(self) -> str:
        """What it has printed."""
        return self.out.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """Kill it if it still runs, and remove its file."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.out.unlink(missing_ok=True)
        with _lock:
            _running.pop(id(self), None)


_lock = threading.Lock()
_running: dict[int, Running] = {}


def end_all() -> None:
    """Kill all programs that this process started and that still run."""
    with _lock:
        left = list(_running.values())
    for one in left:
        one.end()


def detect() -> Program | None:
    """The installed ib_write_bw; None if there is none.

    Its --version may exit with 1, so only the text counts.
    """
    if shutil.which(BANDWIDTH) is None:
        return None
    return Program(
        perftest_text.version(_said(BANDWIDTH, "--version")),
        perftest_text.sends_from_gpu(_said(BANDWIDTH, "--help")),
    )


@functools.cache
def _said(program: str, option: str) -> str:
    try:
        done = subprocess.run(
            [program, option],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DETECT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode(errors="replace")


def start(words: list[str]) -> Running:
    """Start a program. NoMeasurement if it is not installed."""
    descriptor, name = tempfile.mkstemp(prefix="busbw-perftest-")
    with os.fdopen(descriptor, "wb") as out:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        except OSError as error:
            Path(name).unlink()
            raise NoMeasurement(
                f"{words[0]}: {error.strerror}", "install perftest on all hosts, or use --test tcp"
            ) from error
    running = Running(process, Path(name), words)
    with _lock:
        _running[id(running)] = running
    return running


def serve(test: Test, limit_s: float) -> tuple[Running, int]:
    """A server that listens, and its port.

    NoMeasurement if it ends or does not listen within `limit_s`.

    The port is looked up in /proc: the line that a server prints when it waits may stay in its
    output buffer.
    """
    port = free_port()
    running = start(test.words(port))
    deadline = time.monotonic() + limit_s
    while not _listens(running.process.pid, port):
        ended = running.process.poll() is not None
        if ended or time.monotonic() >= deadline:
            text = running.output()
            running.end()
            why = (
                f"exit code {running.process.returncode}"
                if ended
                else f"does not listen on port {port} after {limit_s:g} s"
            )
            raise _failed(running.words, why, text)
        time.sleep(_POLL_S)
    return running, port


def client(test: Test, server: str, port: int, limit_s: float) -> str:
    """The output of a client. NoMeasurement if it fails or takes longer than `limit_s`."""
    running = start(test.words(port, server))
    try:
        code = running.process.wait(limit_s)
        text = running.output()
    except subprocess.TimeoutExpired as error:
        raise _failed(
            running.words, f"did not end within {limit_s:g} s", running.output()
        ) from error
    finally:
        running.end()
    if code:
        raise _failed(running.words, f"exit code {code}", text)
    return text


def unreadable(text: str) -> NoMeasurement:
    """The error for output without the row of the test."""
    return NoMeasurement(
        f"perftest printed no result: {perftest_text.complaint(text)!r}",
        "run the same command by hand on both hosts",
    )


def _failed(words: list[str], why: str, text: str) -> NoMeasurement:
    said = perftest_text.complaint(text)
    return NoMeasurement(
        f"`{' '.join(words)}`: {why}{f': {said}' if said else ''}",
        "run the same command by hand on both hosts",
    )


def free_port() -> int:
    """A free port, since perftest cannot choose one."""
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])


def _listens(pid: int, port: int) -> bool:
    """Whether a program, or what it has started, listens on a TCP port.

    Another one may have taken the port since it was free.
    """
    found = _listening(port)
    return bool(found) and any(
        not found.isdisjoint(_open_files(one)) for one in (pid, *children(pid))
    )


def _listening(port: int) -> set[str]:
    """The sockets of this network namespace that listen on a port, as links in /proc/PID/fd name
    them.
    """
    found = set()
    for family in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{family}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                yield str(entry.readlink())
