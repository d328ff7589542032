"""Runs perftest and parses its output.

A test is a server on one node and a client on the other, with one message size per call. It is
ended by killing only the process that was started here.

The parser reads versions, options, and the table of a test. Rows are recognized by their numbers:
messages about CPU frequencies come between the lines, and some versions print the header twice. A
row of bandwidth has two integers and three decimals, one of latency two integers and three or more
decimals. Without --report_gbits bandwidth is in units of 2^20 bytes, whether the header says MB/sec
or MiB/sec.
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
from busbw.link.types import PerftestProgram

_UNITS = {"Gb/sec": 1e9 / 8, "MB/sec": float(1 << 20), "MiB/sec": float(1 << 20)}
_UNIT = re.compile(r"BW average\[(Gb/sec|MB/sec|MiB/sec)\]")
_BANDWIDTH = re.compile(r"(?<![\d.])(\d+)\s+(\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)(?![\d.])")
_LATENCY = re.compile(r"(?<![\d.])(\d+)\s+(\d+)((?:\s+\d+\.\d+){3,})")
_TYPICAL, _P99 = 2, 5  # columns of latency after the integers
_MTU = re.compile(r"Mtu\s*:\s*(\d+)\s*\[B\]")
_VERSION = re.compile(r"Version:\s*(\S+)")
_GPU_OPTION = "--use_cuda"
US = 1e-6
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


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """`rate` is the average in bytes per second, `mtu` the RDMA MTU of the header; None if the
    header does not have it.
    """

    rate: float
    mtu: int | None


@dataclass(frozen=True, slots=True)
class PerftestLatency:
    """Seconds: `typical` is the median; `p99` is None in versions that do not print it."""

    typical: float
    p99: float | None
    count: int


def bandwidth(text: str, size: int) -> Bandwidth | None:
    """The bandwidth in the last row of `size` bytes; None without one or with an unknown unit."""
    unit = _UNIT.search(text)
    if unit is None:
        return None
    rows = [row for row in _BANDWIDTH.finditer(text, unit.end()) if int(row.group(1)) == size]
    if not rows:
        return None
    rate = float(rows[-1].group(4)) * _UNITS[unit.group(1)]
    mtu = _MTU.search(text)
    return Bandwidth(rate, int(mtu.group(1)) if mtu else None)


def latency(text: str) -> PerftestLatency | None:
    """The round trips in the last row; None if there is none."""
    head = text.find("t_typical[usec]")
    rows = list(_LATENCY.finditer(text, head)) if head >= 0 else []
    if not rows:
        return None
    _, count, columns = rows[-1].groups()
    values = [float(value) * US for value in columns.split()]
    p99 = values[_P99] if len(values) > _P99 else None
    return PerftestLatency(values[_TYPICAL], p99, int(count))


def version(text: str) -> str:
    """The version in the output of `--version`; '' if it has none."""
    match = _VERSION.search(text)
    return match.group(1) if match else ""


def sends_from_gpu(text: str) -> bool:
    """Whether the help has the option for GPU memory: only programs built with CUDA have it."""
    return _GPU_OPTION in text


def complaint(text: str) -> str:
    """The line for an error message: one that names an unknown option, or else the last line with
    text that is no warning; '' if there is none.
    """
    lines = [line.strip() for line in text.splitlines()]
    unknown = [line for line in lines if "unrecognized option" in line]
    if unknown:
        return unknown[0]
    candidates = (
        line
        for line in reversed(lines)
        if line and not line.startswith("WARNING") and not set(line) <= set("-*= ")
    )
    return next(candidates, "")


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
        words = [self.program, "-d", self.device, "-i", str(self.device_port)]
        words += ["-p", str(port), "-s", str(self.size), "-F"]
        if self.program == BANDWIDTH:
            duration = max(1, round(self.seconds)) + 2 * MARGIN_S
            words += ["-q", str(self.queue_pairs), "-D", str(duration), "-f", str(MARGIN_S)]
            words.append("--report_gbits")
        else:
            words += ["-n", str(ITERATIONS)]
        if self.gid_index is not None:
            words += ["-x", str(self.gid_index)]
        if self.gpu is not None:
            words.append(f"--use_cuda={self.gpu}")
        if self.address and _BIND in _output_of(self.program, "--help"):
            words.append(f"{_BIND}={self.address}")
        if server:
            words.append(server)
        return words


@dataclass(slots=True)
class Running:
    """A running program; its output goes to a file, since a pipe could fill up."""

    process: subprocess.Popen[bytes]
    out: Path
    words: list[str]

    def output(self) -> str:
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
        programs = list(_running.values())
    for program in programs:
        program.end()


def detect() -> PerftestProgram | None:
    """The installed ib_write_bw; None if there is none.

    Its --version may exit with 1, so only the text counts.
    """
    if shutil.which(BANDWIDTH) is None:
        return None
    return PerftestProgram(
        version(_output_of(BANDWIDTH, "--version")), sends_from_gpu(_output_of(BANDWIDTH, "--help"))
    )


@functools.cache
def _output_of(program: str, option: str) -> str:
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
    while not listens(running.process.pid, port):
        ended = running.process.poll() is not None
        if ended or time.monotonic() >= deadline:
            text = running.output()
            running.end()
            why = f"does not listen on port {port} after {limit_s:g} s"
            if ended:
                why = f"exit code {running.process.returncode}"
            raise _failure(running.words, why, text)
        time.sleep(_POLL_S)
    return running, port


def client(test: Test, server: str, port: int, limit_s: float) -> str:
    """The output of a client. NoMeasurement if it fails or takes longer than `limit_s`."""
    running = start(test.words(port, server))
    try:
        code = running.process.wait(limit_s)
        text = running.output()
    except subprocess.TimeoutExpired as error:
        raise _failure(
            running.words, f"did not end within {limit_s:g} s", running.output()
        ) from error
    finally:
        running.end()
    if code:
        raise _failure(running.words, f"exit code {code}", text)
    return text


def unreadable(text: str) -> NoMeasurement:
    """The error for output without the row of the test."""
    return NoMeasurement(
        f"perftest printed no result: {complaint(text)!r}",
        "run the same command by hand on both hosts",
    )


def _failure(words: list[str], why: str, text: str) -> NoMeasurement:
    message = f"`{' '.join(words)}`: {why}"
    line = complaint(text)
    if line:
        message += f": {line}"
    return NoMeasurement(message, "run the same command by hand on both hosts")


def free_port() -> int:
    """A free port, since perftest cannot choose one."""
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])


def listens(pid: int, port: int) -> bool:
    """Whether a process, or one of its children, listens on a TCP port.

    Another program may have taken the port since it was free.
    """
    sockets = _listening_sockets(port)
    return bool(sockets) and any(
        not sockets.isdisjoint(_open_files(process_id)) for process_id in (pid, *children(pid))
    )


def _listening_sockets(port: int) -> set[str]:
    """The sockets of this network namespace that listen on a port, named as in /proc/PID/fd."""
    sockets = set()
    for family in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{family}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    return sockets


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                yield str(entry.readlink())
