"""Runs perftest: a server on one node and a client on the other, with one message size per call.

A test is ended by killing only the process that was started here.

Parses perftest's output: versions, options, and the table of a test.

Rows are recognized by their numbers: messages about CPU frequencies come between the lines, and
some versions print the header twice. A row of bandwidth has two integers and three decimals, one of
latency two integers and three or more decimals. Without --report_gbits bandwidth is in units of
2^20 bytes, whether the header says MB/sec or MiB/sec.
"""

import contextlib
import functools
import os
import re
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
from busbw.link.types import Program

_UNITS = {"Gb/sec": 1e9 / 8, "MB/sec": float(1 << 20), "MiB/sec": float(1 << 20)}
_UNIT = re.compile(r"BW average\[(Gb/sec|MB/sec|MiB/sec)\]")
_BANDWIDTH = re.compile(r"(?<![\d.])(\d+)\s+(\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)(?![\d.])")
_LATENCY = re.compile(r"(?<![\d.])(\d+)\s+(\d+)((?:\s+\d+\.\d+){3,})")
_TYPICAL, _P99 = 2, 5  # columns of latency after the integers
_MTU = re.compile(r"Mtu\s*:\s*(\d+)\s*\[B\]")
_VERSION = re.compile(r"Version:\s*(\S+)")
_GPU_OPTION = "--use_cuda"
US = 1e-6


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """`rate` is the average in bytes per second, `mtu` the RDMA MTU of the header, None if it
    does not say.
    """

    rate: float
    mtu: int | None


@dataclass(frozen=True, slots=True)
class Trips:
    """Seconds: `typical` is the median; `p99` is None in versions that do not print it."""

    typical: float
    p99: float | None
    count: int


def bandwidth(text: str, size: int) -> Bandwidth | None:
    """The last row of `size` bytes; None if there is none, or its unit is unknown."""
    unit = _UNIT.search(text)
    if unit is None:
        return None
    rows = [row for row in _BANDWIDTH.finditer(text, unit.end()) if int(row.group(1)) == size]
    mtu = _MTU.search(text)
    return (
        Bandwidth(
            float(rows[-1].group(4)) * _UNITS[unit.group(1)], int(mtu.group(1)) if mtu else None
        )
        if rows
        else None
    )


def latency(text: str) -> Trips | None:
    """The last row; None if there is none."""
    head = text.find("t_typical[usec]")
    rows = list(_LATENCY.finditer(text, head)) if head >= 0 else []
    if not rows:
        return None
    values = [float(value) * US for value in rows[-1].group(3).split()]
    return Trips(
        values[_TYPICAL], values[_P99] if len(values) > _P99 else None, int(rows[-1].group(2))
    )


def version(text: str) -> str:
    """The version that `--version` prints; '' if it does not."""
    found = _VERSION.search(text)
    return found.group(1) if found else ""


def sends_from_gpu(text: str) -> bool:
    """Whether the help has the option for GPU memory: only programs built with CUDA have it."""
    return _GPU_OPTION in text


def complaint(text: str) -> str:
    """The last line of text but warnings, for an error message; '' if there is none.

    For an unknown option, the line that names it.
    """
    lines = [line.strip() for line in text.splitlines()]
    if unknown := next((line for line in lines if "unrecognized option" in line), ""):
        return unknown
    said = (
        line
        for line in reversed(lines)
        if line and not line.startswith("WARNING") and not set(line) <= set("-*= ")
    )
    return next(said, "")


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
        version(_said(BANDWIDTH, "--version")), sends_from_gpu(_said(BANDWIDTH, "--help"))
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
        f"perftest printed no result: {complaint(text)!r}",
        "run the same command by hand on both hosts",
    )


def _failed(words: list[str], why: str, text: str) -> NoMeasurement:
    said = complaint(text)
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
