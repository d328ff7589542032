"""Processes of this host from /proc, and the request to be killed with the parent.

`answer` gives up reads that block while a process or a server hangs. A process that hangs in the
kernel may hold the lock of its memory, which reads of its `cmdline`, `environ` and `maps` in /proc
need.
"""

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable, Collection
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

LIMIT_S = 1.0
TICKS = os.sysconf("SC_CLK_TCK")
Result = TypeVar("Result")
PR_SET_PDEATHSIG = 1  # linux/prctl.h
GONE = ""
ENDED = frozenset({GONE, "Z", "X", "x"})
FROZEN = "F"  # not a letter of proc(5)
STOPPED = frozenset({"T", "t", FROZEN})
CGROUPS = Path("/sys/fs/cgroup")
STATES = {
    FROZEN: "frozen with its cgroup",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "dead",
    "X": "dead",
    "x": "dead",
    GONE: "gone",
    "D": "waiting for a device",
}


class _ReaderThread:
    """A thread that reads. A thread that hangs ends with this process."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        Thread(target=self._work, name="reader", daemon=True).start()

    def begin(self, read: Callable[[], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        self._requests.put((read, future))
        return future

    def _work(self) -> None:
        while True:
            read, future = self._requests.get()
            try:
                future.set_result(read())
            except Exception as error:  # noqa: BLE001 - raised in the thread that waits
                future.set_exception(error)


_idle: list[_ReaderThread] = []
_silent: dict[str, "Future[Any]"] = {}  # by subject


def _after_fork() -> None:
    """Forget the threads, which a child process does not have."""
    _idle.clear()
    _silent.clear()


os.register_at_fork(after_in_child=_after_fork)


def answer(subject: str, read: Callable[[], Result]) -> Result:
    """What `read` returns, or what it raises.

    TimeoutError, which is an OSError, if it takes longer than LIMIT_S. Until it ends, other reads
    of the same `subject` are not begun and raise TimeoutError at once.
    """
    earlier = _silent.get(subject)
    if earlier is not None and not earlier.done():
        raise TimeoutError(f"{subject} does not answer")
    _silent.pop(subject, None)
    try:
        reader = _idle.pop()
    except IndexError:
        reader = _ReaderThread()
    future = reader.begin(read)
    try:
        result: Result = future.result(LIMIT_S)
        return result
    finally:
        if future.done():
            _idle.append(reader)
        else:
            _silent[subject] = future


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send the signal `number` to this process when its parent ends (prctl(2)).

    SIGKILL also ends a stopped process.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))


def outlive_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0)


def allow_open_files() -> None:
    """Raise this process's limit of open files to its hard limit.

    Each remote process takes three.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def stat_fields(text: str) -> tuple[str, int] | None:
    """State letter and parent's pid from the text of /proc/PID/stat; None for another text."""
    fields = _stat_words(text)
    return (fields[0], int(fields[1])) if len(fields) > 1 and fields[1].isdecimal() else None


def _stat_words(text: str) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold spaces and parentheses."""
    return text.rpartition(")")[2].split()


def start_time(pid: int) -> int:
    """When the process started, in clock ticks since boot; 0 if there is no such process.

    With the pid it identifies a process.
    """
    fields = _stat_words(read_proc(pid, "stat"))
    return int(fields[19]) if fields and fields[0] not in ENDED else 0


def cpu_s(pid: int) -> float:
    """CPU seconds of all threads of the process, in user mode and in the kernel; 0 without one."""
    fields = _stat_words(read_proc(pid, "stat"))
    return (int(fields[11]) + int(fields[12])) / TICKS if len(fields) > 12 else 0.0


def used(pid: int) -> tuple[int, float]:
    """Its `start_time` and its `cpu_s`, of one moment."""
    fields = _stat_words(read_proc(pid, "stat"))
    if len(fields) < 20 or fields[0] in ENDED:
        return 0, 0.0
    return int(fields[19]), (int(fields[11]) + int(fields[12])) / TICKS


def variables(pid: int) -> dict[str, str]:
    """The environment with which the process was started; OSError as of `read_memory_file`."""
    words = read_memory_file(pid, "environ").decode(errors="replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def state(pid: int) -> str:
    """The state letter of proc(5), such as R or D; GONE without a process, FROZEN by a cgroup."""
    letter = (stat_fields(read_proc(pid, "stat")) or (GONE, 0))[0]
    return FROZEN if letter in ("S", "D") and _is_frozen(pid) else letter


def _is_frozen(pid: int) -> bool:
    """Whether the cgroup of a process, or one above it, is frozen (cgroups 1 and 2).

    The kernel's function in which it waits says so where the files of cgroups are not mounted.
    """
    if read_proc(pid, "wchan") in ("__refrigerator", "do_freezer_trap"):
        return True
    for line in read_proc(pid, "cgroup").splitlines():
        _, controller, path = line.split(":", 2)
        files = [f"unified{path}/cgroup.events", f"{path.lstrip('/')}/cgroup.events"]
        if controller:
            files = [f"freezer{path}/freezer.state"] * (controller == "freezer")
        for file in files:
            with contextlib.suppress(OSError):
                words = (CGROUPS / file).read_text().split()
                if "FROZEN" in words or "frozen 1" in " ".join(words):
                    return True
    return False


def fatal_signal(pid: int) -> int:
    """The signal that killed a process that its parent has not collected yet (proc(5)).

    0 if no signal did, or if another user owns the process.
    """
    return exit_status(pid)[0]


def exit_status(pid: int) -> tuple[int, int]:
    """The same signal, and the code with which the process exited if none did."""
    fields = _stat_words(read_proc(pid, "stat"))
    status = int(fields[49]) if fields and fields[0] in ENDED else 0
    return status & 0x7F, status >> 8 & 0xFF


def has_no_variables(pid: int) -> bool:
    """Whether the process was started with an empty environment.

    While a process executes a new program, /proc shows no variables either.
    """
    fields = _stat_words(read_proc(pid, "stat"))
    if len(fields) < 49:
        return False
    # See proc(5). Linux sets the start of the code after those of the environment.
    start_code, env_start, env_end = fields[23], fields[47], fields[48]
    return start_code != "0" and env_start == env_end


def parent(pid: int) -> int:
    """The parent of the process; 0 if there is no such process."""
    return (stat_fields(read_proc(pid, "stat")) or (GONE, 0))[1]


def is_below(pid: int, ancestors: Collection[int]) -> bool:
    """Whether one of these processes started it, or started a process that did."""
    while pid > 1:
        pid = parent(pid)
        if pid in ancestors:
            return True
    return False


def name(pid: int) -> str:
    """The kernel's name of the process, at most 15 characters; '' if there is no such process."""
    return read_proc(pid, "comm").strip()


def command(pid: int) -> str:
    """The command line of the process; '' if it does not exist, has ended, or hangs."""
    with contextlib.suppress(OSError):
        return read_memory_file(pid, "cmdline").decode(errors="replace").replace("\0", " ").strip()
    return ""


def has_open(pid: int, prefix: str) -> bool:
    """Whether a process has a file open whose path begins so; False if that may not be read."""
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if str(link.readlink()).startswith(prefix):
                    return True
    return False


def read_memory_file(pid: int, file: str) -> bytes:
    """The bytes of /proc/PID/`file`, which is `cmdline`, `environ` or `maps`.

    OSError if the process has ended, is another user's, or hangs in the kernel (TimeoutError).
    """
    return answer(f"process {pid}", Path(f"/proc/{pid}/{file}").read_bytes)


def thread_times(thread: int) -> tuple[float, float] | None:
    """Seconds that a thread of this process ran, and seconds that it waited for a processor.

    `thread` is its kernel id. None if it has ended, or the kernel does not count that
    (CONFIG_SCHED_INFO).
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
    states = children(os.getppid())
    states.pop(os.getpid(), None)
    return states


def children(pid: int) -> dict[int, str]:
    """State letters, by pid, of the processes whose parent is `pid`."""
    states = {}
    for candidate in _child_candidates(pid):
        fields = stat_fields(read_proc(candidate, "stat"))
        if fields and fields[1] == pid:
            states[candidate] = fields[0]
    return states


def tree(pid: int) -> dict[int, int]:
    """Start times, by pid, of the process, of those that it started, and of those that these
    started; a process comes before its children.
    """
    started = start_time(pid)
    processes = {pid: started} if started else {}
    for child in children(pid):
        processes |= tree(child)
    return processes


def _child_candidates(pid: int) -> list[int]:
    """Children of `pid`, or all processes if the kernel lists no children.

    It lists them if it was built with CONFIG_PROC_CHILDREN.
    """
    try:
        lists = [
            (thread / "children").read_text(encoding="ascii")
            for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [int(child) for line in lists for child in line.split()]


def read_proc(pid: int, file: str) -> str:
    """The text of /proc/PID/FILE; '' if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def watch(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends (pidfd_open(2)).

    None if it has ended, or before Linux 5.3.
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
