"""Runs a user's own command line with variables for all of its ranks, whatever its launcher.

`Watch` notices that the ranks of the command use Gloo and not NCCL, by the names that PyTorch and
Gloo give to their threads.
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
# So many checks a second apart, then one a minute: most jobs join in their first minute.
FREQUENT_CHECKS, FREQUENT_PAUSE_S, SELDOM_PAUSE_S = 60, 1.0, 60.0
CONFIRMING_CHECKS = 2  # checks in a row, as a rank that uses both may create Gloo's threads first
OPEN_MPI = ("mpirun", "mpiexec", "orterun", "prterun")
# Programs that start the command which follows them.
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


def named(words: Sequence[str]) -> str:
    """The word of a command line that chooses Gloo; '' if none does.

    It is `gloo` of `--backend gloo`, or `--dist-backend=gloo`.
    """
    return next((word for word in words if word.rpartition("=")[2] == NAME), "")


class Watch:
    """Checks the processes below `pid` until one of them uses only Gloo, or until `recorded()`.

    `on_gloo` is called with the pid of that process, and `rank` keeps it.
    """

    def __init__(
        self, pid: int, recorded: Callable[[], bool], on_gloo: Callable[[int], None]
    ) -> None:
        self.rank = 0
        self._pid, self._recorded, self._on_gloo = pid, recorded, on_gloo
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gloo watch", daemon=True)

    def __enter__(self) -> "Watch":
        """Start the checks."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the checks."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        times_in_row = 0
        for check in itertools.count():
            pause_s = (
                FREQUENT_PAUSE_S if check < FREQUENT_CHECKS or times_in_row else SELDOM_PAUSE_S
            )
            if self._end.wait(pause_s) or self._recorded():
                return
            gloo_rank = find_gloo_process(self._pid)
            times_in_row = times_in_row + 1 if gloo_rank else 0
            if times_in_row == CONFIRMING_CHECKS:
                self.rank = gloo_rank
                self._on_gloo(gloo_rank)
                return


def find_gloo_process(pid: int) -> int:
    """The pid of a process below `pid` with threads of Gloo.

    0 if there is none, or if any process has threads of NCCL.
    """
    gloo_rank = 0
    for descendant in _descendants(pid):
        names = process.threads(descendant)
        if any(name.startswith(NCCL) for name in names):
            return 0
        if any(name.startswith(GLOO) for name in names):
            gloo_rank = gloo_rank or descendant
    return gloo_rank


def _descendants(pid: int) -> Iterator[int]:
    for child in process.children(pid):
        yield child
        yield from _descendants(child)


def command_line(argv: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command line that gives `variables` to ranks on other hosts.

    The variables are in the environment too. Open MPI's mpirun passes none of them on by itself.
    srun, MPICH's mpiexec and torchrun pass on all; srun not with --export. UsageError for an srun
    that leaves them out.
    """
    position = _launcher_position(argv)
    before, launcher, after = argv[:position], argv[position], argv[position + 1 :]
    program = Path(launcher).name
    if program in OPEN_MPI and _is_open_mpi(launcher):
        options = [word for name in variables for word in ("-x", name)]
        return [*before, launcher, *options, *after]
    export = _export(after) if program == "srun" else None
    if export is not None and "ALL" not in export.split(","):
        raise UsageError(
            f"srun --export={export} passes no variables of busbw to the ranks",
            "srun --export=ALL,... keeps those named",
        )
    return list(argv)


def _launcher_position(argv: Sequence[str]) -> int:
    """The index of the launcher's word: 0, or after `timeout 1h`, `env NAME=1` and the like."""
    if Path(argv[0]).name in STARTERS:
        for position, word in enumerate(argv):
            if Path(word).name in (*OPEN_MPI, "srun"):
                return position
    return 0


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
    path = program if "/" in program else _on_path(program)
    try:
        mpirun.find([path] if path else [])
    except NoMeasurement:
        return False
    return True


def _on_path(program: str) -> str:
    for folder in os.get_exec_path():
        path = Path(folder, program)
        if os.access(path, os.X_OK):
            return str(path)
    return ""


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command to its end, and return its exit code, or 128 + N if signal N ended it.

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

    # nohup ignores SIGHUP, which then is not passed on.
    passed_on = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    # Handlers are set before the start, so that no signal is lost.
    before = {number: signal.signal(number, pass_on) for number in passed_on}
    try:
        children.append(_start(argv, environ))
        # SIGINT is ignored only after the start: the command would inherit that.
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = children[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _start(argv: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(argv, env=dict(environ))
    except OSError as error:
        raise NoMeasurement(
            f"{argv[0]}: {error.strerror}", "give the command after --, as you would start it"
        ) from error
