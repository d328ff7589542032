"""Processes of this host from /proc, and the request to be killed with the parent."""

import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

from busbw.host import hung

PR_SET_PDEATHSIG = 1  # linux/prctl.h
GONE = ""
ENDED = frozenset({GONE, "Z", "X", "x"})
STOPPED = frozenset({"T", "t"})
STATES = {
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "dead",
    "X": "dead",
    "x": "dead",
    GONE: "gone",
    "D": "waiting for a device",
}


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send `number` to this process when its parent ends (prctl(2)); SIGKILL
    also ends a stopped process.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))


def allow_open_files() -> None:
    """Raise this process's limit of open files to the most that it may have: each remote process
    takes three.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def stat_fields(text: str) -> tuple[str, int] | None:
    """State letter and parent's pid from the text of /proc/PID/stat; its second field, the name,
    may contain spaces and parentheses.
    """
    fields = text.rpartition(")")[2].split()
    return (fields[0], int(fields[1])) if len(fields) > 1 and fields[1].isdecimal() else None


def start_time(pid: int) -> int:
    """When the process started, in clock ticks since boot; 0 if there is no such process.

    With the pid it identifies a process.
    """
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[19]) if fields and fields[0] not in ENDED else 0


def state(pid: int) -> str:
    """The state letter of proc(5): R, S, D, T, Z ...; GONE if there is no such process."""
    return (stat_fields(_read(pid, "stat")) or (GONE, 0))[0]


def fatal_signal(pid: int) -> int:
    """The signal that killed a process that its parent has not collected yet; 0 if none did or
    another user owns it (proc(5)).
    """
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[49]) & 0x7F if fields and fields[0] in ENDED else 0


def has_no_variables(pid: int) -> bool:
    """Whether it was started with an empty environment.

    While a process executes a new program, /proc shows none either.
    """
    fields = _read(pid, "stat").rpartition(")")[2].split()
    if len(fields) < 49:
        return False
    # proc(5); Linux sets the first last
    start_code, env_start, env_end = fields[23], fields[47], fields[48]
    return start_code != "0" and env_start == env_end


def parent(pid: int) -> int:
    """The process that started it, or has taken it over; 0 if there is no such process."""
    return (stat_fields(_read(pid, "stat")) or (GONE, 0))[1]


def name(pid: int) -> str:
    """The kernel's name of the process, at most 15 characters; '' if there is no such process."""
    return _read(pid, "comm").strip()


def command(pid: int) -> str:
    """The command line of the process; '' if there is no such process, it has ended, or it
    hangs.
    """
    with contextlib.suppress(OSError):
        return of_memory(pid, "cmdline").decode(errors="replace").replace("\0", " ").strip()
    return ""


def of_memory(pid: int, file: str) -> bytes:
    """Its `cmdline`, `environ` or `maps`.

    OSError if it has ended, is another user's, or hangs in the kernel (TimeoutError).
    """
    return hung.answer(f"process {pid}", Path(f"/proc/{pid}/{file}").read_bytes)


def threads(pid: int) -> list[str]:
    """The names of the threads of a process, at most 15 characters each; none if it has ended."""
    try:
        return [
            _read(pid, f"task/{thread.name}/comm").strip()
            for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return []


def thread_times(thread: int) -> tuple[float, float] | None:
    """Seconds on a processor, and seconds ready to run without one, of a thread of this process by
    its kernel id.

    None if it has ended, or the kernel does not count that (CONFIG_SCHED_INFO).
    """
    try:
        running, waiting, _ = (
            Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii").split()
        )
    except (OSError, ValueError):
        return None
    return int(running) / 1e9, int(waiting) / 1e9


def siblings() -> dict[int, str]:
    """State letters, by pid, of the other children of this process's parent."""
    found = children(os.getppid())
    found.pop(os.getpid(), None)
    return found


def children(pid: int) -> dict[int, str]:
    """State letters, by pid, of the processes that `pid` started and those that it has taken
    over.
    """
    found = {
        child: fields for child in _listed(pid) if (fields := stat_fields(_read(child, "stat")))
    }
    return {child: letter for child, (letter, of) in found.items() if of == pid}


def _listed(pid: int) -> list[int]:
    """Children of `pid`; all processes if the kernel was built without such lists
    (CONFIG_PROC_CHILDREN).
    """
    try:
        lists = [
            (thread / "children").read_text(encoding="ascii")
            for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [int(child) for line in lists for child in line.split()]


def _read(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def watch(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends (pidfd_open(2)); None if it has
    ended, or before Linux 5.3.
    """
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def kill(pid: int) -> None:
    """Send SIGKILL to the process, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def kill_with_children(pid: int) -> None:
    """Send SIGKILL to the process, to those that it started, and to those that these started."""
    started = children(pid)
    kill(pid)
    for child in started:
        kill_with_children(child)
