"""Runs a user's own command line with variables for all of its ranks, whichever launcher it
begins with.

Notices that the ranks of a command use Gloo and not NCCL, by the names that PyTorch and Gloo
give to their threads.
"""

import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from busbw.core.errors import NoMeasurement, UsageError
from busbw.host import process
from busbw.launch import mpirun

NAME = "gloo"
GLOO = ("pt_gloo", "gloo_")  # pt_gloo_runloop of PyTorch, gloo_tcp_loop of Gloo
NCCL = "pt_nccl"  # pt_nccl_watchdg; a job may use both: Gloo for its control
# so many looks a second apart, then one a minute: most jobs join in their first minute
OFTEN, OFTEN_S, SELDOM_S = 60, 1.0, 60.0
SEEN = 2  # looks in a row, as a rank that uses both may create Gloo's threads first


def named(words: Sequence[str]) -> str:
    """The word of a command line that chooses Gloo: `gloo` of `--backend gloo`,
    `--dist-backend=gloo`; '' if none does.
    """
    return next((word for word in words if word.rpartition("=")[2] == NAME), "")


class Watch:
    """Looks at the processes below `pid` until one uses Gloo alone, which `tell` gets, or until
    `recorded()`.
    """

    def __init__(self, pid: int, recorded: Callable[[], bool], tell: Callable[[int], None]) -> None:
        self.rank = 0
        self._pid, self._recorded, self._tell = pid, recorded, tell
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gloo watch", daemon=True)

    def __enter__(self) -> "Watch":
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        seen = 0
        for look in itertools.count():
            if self._end.wait(OFTEN_S if look < OFTEN or seen else SELDOM_S) or self._recorded():
                return
            found = rank(self._pid)
            seen = seen + 1 if found else 0
            if seen == SEEN:
                self.rank = found
                self._tell(found)
                return


def rank(pid: int) -> int:
    """A process below `pid` with threads of Gloo, 0 if there is none or any has threads of NCCL."""
    found = 0
    for one in _below(pid):
        names = process.threads(one)
        if any(name.startswith(NCCL) for name in names):
            return 0
        if any(name.startswith(GLOO) for name in names):
            found = found or one
    return found


def _below(pid: int) -> Iterator[int]:
    for child in process.children(pid):
        yield child
        yield from _below(child)


OPEN_MPI = ("mpirun", "mpiexec", "orterun", "prterun")
# that start what follows
STARTERS = (
    "env",
    "timeout",
    "numactl",
    "taskset",
    "nice",
    "ionice",
    "chrt",
    "setsid",
    "stdbuf",
    "time",
)
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
PASS_ON_S = 0.5


def command_line(argv: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command line that gives `variables`, which are in the environment too, to ranks on other
    hosts.

    Open MPI's mpirun passes none on by itself. srun, MPICH's mpiexec and torchrun pass on all; srun
    not with --export. UsageError for an srun that leaves them out.
    """
    at = _launcher(argv)
    program = Path(argv[at]).name
    if program in OPEN_MPI and _is_open_mpi(argv[at]):
        return [
            *argv[: at + 1],
            *(word for name in variables for word in ("-x", name)),
            *argv[at + 1 :],
        ]
    export = _export(argv[at + 1 :]) if program == "srun" else None
    if export is not None and "ALL" not in export.split(","):
        raise UsageError(
            f"srun --export={export} passes no variables of busbw to the ranks",
            "srun --export=ALL,... keeps those named",
        )
    return list(argv)


def _launcher(argv: Sequence[str]) -> int:
    """Where the launcher is: at the beginning, or after `timeout 1h`, `env NAME=1` and the like."""
    if Path(argv[0]).name not in STARTERS:
        return 0
    return next((at for at, word in enumerate(argv) if Path(word).name in (*OPEN_MPI, "srun")), 0)


def _export(words: Sequence[str]) -> str | None:
    """The value of srun's --export, which comes before the program; None without it."""
    for at, word in enumerate(words):
        if word.startswith("--export="):
            return word.partition("=")[2]
        if word == "--export" and at + 1 < len(words):
            return words[at + 1]
        if word == "--" or (not word.startswith("-") and _on_path(word)):
            return None
    return None


def _is_open_mpi(program: str) -> bool:
    try:
        mpirun.find(
            [program] if "/" in program else [found] if (found := _on_path(program)) else []
        )
    except NoMeasurement:
        return False
    return True


def _on_path(program: str) -> str:
    return next(
        (
            str(path)
            for folder in os.get_exec_path()
            if os.access(path := Path(folder, program), os.X_OK)
        ),
        "",
    )


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command to its end; returns its exit code, 128 and the signal's number if one ended
    it.

    Ctrl-C reaches the command too, as it belongs to the same terminal. SIGTERM and SIGHUP are
    passed on if it still runs a moment later: a scheduler sends them to it too, and launchers take
    a second one as an order to end at once. NoMeasurement if it cannot be started.
    """
    children: list[subprocess.Popen[bytes]] = []

    def send(number: int) -> None:
        for child in children:
            child.send_signal(number)

    def pass_on(number: int, _frame: object) -> None:
        timer = threading.Timer(PASS_ON_S, send, (number,))
        timer.daemon = True
        timer.start()

    # nohup ignores SIGHUP
    passed_on = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    # before the start: one that comes then is not lost
    before = {number: signal.signal(number, pass_on) for number in passed_on}
    try:
        children.append(_started(argv, environ))
        # after it: the command would inherit that
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = children[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _started(argv: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(argv, env=dict(environ))
    except OSError as error:
        raise NoMeasurement(
            f"{argv[0]}: {error.strerror}", "give the command after --, as you would start it"
        ) from error
