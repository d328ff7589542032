"""Runs a user's own command line with variables for all of its ranks, whatever its launcher."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from busbw.core.errors import NoMeasurement, TimedOut, UsageError
from busbw.host import process
from busbw.launch import mpirun

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
EXPORT_VARIABLE = "SLURM_EXPORT_ENV"  # sbatch --export=NONE sets it for the sruns of its job
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
PASS_ON_S = 0.5
END_S = 30.0  # launchers end their ranks, which may clean up
KILLED_S = 5.0  # a process that waits for a device does not end even when it is killed
POLL_S = 0.05


def command_line(argv: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command line that gives `variables` to ranks on other hosts.

    The variables are in the environment too. Open MPI's mpirun passes none of them on by itself.
    srun, MPICH's mpiexec and torchrun pass on all; srun not with --export or SLURM_EXPORT_ENV.
    UsageError for an srun that leaves them out.
    """
    position = _launcher_position(argv)
    before, launcher, after = argv[:position], argv[position], argv[position + 1 :]
    program = Path(launcher).name
    if program in OPEN_MPI and _is_open_mpi(launcher):
        options = [word for name in variables for word in ("-x", name)]
        return [*before, launcher, *options, *after]
    if program == "srun":
        _check_export(_export(after))
    return list(argv)


def _launcher_position(argv: Sequence[str]) -> int:
    """The index of the launcher's word: 0, or after `timeout 1h`, `env NAME=1` and the like."""
    if Path(argv[0]).name in STARTERS:
        for position, word in enumerate(argv):
            if Path(word).name in (*OPEN_MPI, "srun"):
                return position
    return 0


def _check_export(option: str | None) -> None:
    """UsageError if srun's --export, or the variable that stands for it, leaves variables out."""
    if option is not None:
        if "ALL" not in option.split(","):
            raise UsageError(
                f"srun --export={option} passes no variables of busbw to the ranks",
                "srun --export=ALL,... keeps those named",
            )
        return
    variable = os.environ.get(EXPORT_VARIABLE)
    if variable is not None and "ALL" not in variable.split(","):
        raise UsageError(
            f"{EXPORT_VARIABLE}={variable}: srun passes no variables of busbw to the ranks",
            "write srun --export=ALL, or submit the job with sbatch --export=ALL",
        )


def _export(words: Sequence[str]) -> str | None:
    """The value of srun's --export, which comes before the program; None without it."""
    for at, word in enumerate(words):
        if word.startswith("--export="):
            return word.partition("=")[2]
        if word == "--export" and at + 1 < len(words):
            return words[at + 1]
        # Words that are no program are values of options, as in -p gpu -D /tmp.
        if word == "--" or (not word.startswith("-") and shutil.which(word)):
            return None
    return None


def _is_open_mpi(program: str) -> bool:
    path = program if "/" in program else shutil.which(program)
    try:
        mpirun.find([path] if path else [])
    except NoMeasurement:
        return False
    return True


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdout: int | None = None,
    limit_s: float | None = None,
    *,
    is_part: bool = False,
    on_signal: Callable[[int], None] | None = None,
) -> int:
    """Run the command to its end, and return its exit code, or 128 + N if signal N ended it.

    `stdout` is a file descriptor, None for that of this process. TimedOut after `limit_s` seconds,
    when the command and all that it started are ended.

    Ctrl-C reaches the command too, as it belongs to the same terminal. SIGTERM and SIGHUP are
    passed on if it still runs a moment later: a scheduler sends them to it too, and launchers take
    a second one as an order to end at once. NoMeasurement if it cannot be started.

    `is_part`: more follows the command; then KeyboardInterrupt at its end if a signal came.
    `on_signal` is called with the number of each.
    """
    children: list[subprocess.Popen[bytes]] = []
    received: list[int] = []

    def send(number: int) -> None:
        for child in children:
            child.send_signal(number)

    def receive(number: int, _frame: object) -> None:
        received.append(number)
        if on_signal:
            on_signal(number)
        if number in PASSED_ON:
            timer = threading.Timer(PASS_ON_S, send, (number,))
            timer.daemon = True
            timer.start()

    # nohup ignores SIGHUP, which then is not passed on.
    watched = [
        number
        for number in (*PASSED_ON, signal.SIGINT)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    # Handlers are set before the start, so that no signal is lost.
    before = {number: signal.signal(number, receive) for number in watched}
    try:
        children.append(_start(argv, environ, stdout))
        code = _wait(children[0], limit_s)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received and is_part:
        raise KeyboardInterrupt
    return code if code >= 0 else 128 - code


def _wait(child: "subprocess.Popen[bytes]", limit_s: float | None) -> int:
    """The exit code. TimedOut after the limit, when the command was ended."""
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        _end(process.tree(child.pid))
        child.poll()
        raise TimedOut(f"the command had not ended after {limit_s:g} s") from None


def _end(tree: Mapping[int, int]) -> None:
    """End the processes of a `process.tree`.

    All of them get the signal, because a shell ends without its children. Those that remain after
    END_S are killed, with what they have started since.
    """
    for pid in _running(tree):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    _wait_for_end(tree, END_S)
    for pid in _running(tree):
        process.kill_with_children(pid)
    _wait_for_end(tree, KILLED_S)


def _running(tree: Mapping[int, int]) -> list[int]:
    return [pid for pid, started in tree.items() if process.start_time(pid) == started]


def _wait_for_end(tree: Mapping[int, int], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while _running(tree) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _start(
    argv: Sequence[str], environ: Mapping[str, str], stdout: int | None
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(argv, env=dict(environ), stdout=stdout)
    except OSError as error:
        raise NoMeasurement(
            f"{argv[0]}: {error.strerror}", "give the command after --, as you would start it"
        ) from error
