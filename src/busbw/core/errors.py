"""The errors that busbw raises on purpose, and the exit code of each.

BusbwError               what failed, where, and the value seen; `hint` is the command or change
                         that fixes it
├── UsageError           invalid arguments or input file
                         exit 2
└── NoMeasurement        no measurement possible: no GPU, no MPI, a rank or host was lost
                         exit 3
    ├── TimedOut         a time limit was reached
    ├── StartFailed      the ranks failed to start because of a transient fault
    └── CudaFailed       a call of the CUDA driver failed

Any other exception that reaches the command line is a bug in busbw: exit 4.

There are three tables of exit codes: of `busbw`, of its line for a monitor, and of the compat
commands, which are nccl-tests' own.
"""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from enum import IntEnum
from errno import ENOMEM
from typing import Self

MEMORY_HINT = (
    "smaller sizes or fewer ranks per host; the limits there: ulimit -v; free -g; cat"
    " /sys/fs/cgroup/memory.max"
)


class _Code(IntEnum):
    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code


class Exit(_Code):
    """Exit code of every `busbw` command."""

    OK = 0, "success"
    BAD = 1, "measured, but the result is bad: wrong data, slower than allowed, or a check failed"
    USAGE = 2, "invalid arguments or input file"
    UNKNOWN = (
        3,
        "no measurement possible: no GPU, NCCL or MPI missing, a rank or host lost; a part or a"
        " figure that could not be judged",
    )
    BUG = 4, "a bug in busbw"
    INTERRUPTED = 130, "interrupted; completed measurements are saved"


def worst(codes: Iterable[Exit]) -> Exit:
    """The code of several answers: BAD if one is bad, else UNKNOWN if one could not be judged."""
    found = set(codes)
    for code in (Exit.BAD, Exit.UNKNOWN):
        if code in found:
            return code
    return Exit.OK


class NagiosExit(_Code):
    """Exit code of `busbw check --nagios`, which is that of a Nagios plugin; the name is the word
    in its line.
    """

    OK = 0, "nothing failed, warns or is unknown"
    WARNING = 1, "a check warns; with --fail-on warn it is CRITICAL"
    CRITICAL = 2, "a check failed, or a host did not answer"
    UNKNOWN = 3, "nothing failed, but a part of the machine could not be judged, or nothing could"


class NcclTestsExit(_Code):
    """Exit code of the binaries of nccl-tests (its testResult_t), and so of the compat commands."""

    OK = 0, "success"
    INTERNAL = 1, "internal error"
    CUDA = 2, "CUDA error"
    NCCL = 3, "NCCL or MPI error"
    TIMEOUT = 4, "timeout (-T)"
    NOT_IMPLEMENTED = 5, "not implemented, or fewer GPUs than requested"
    INVALID_USAGE = 6, "invalid usage"
    WRONG_DATA = 7, "wrong data, or below 0.9 x NCCL_TESTS_MIN_BW"
    BAD_ARGUMENTS = 255, "bad arguments"


class BusbwError(Exception):
    """An error with a message and a hint; `exit` is the exit code of the process.

    Both texts name options as `busbw run` does. `options` are the ids of those that the nccl-tests
    commands name otherwise: the rows of cli/perf.py.
    """

    exit: Exit = Exit.BUG

    def __init__(self, message: str, hint: str = "", options: Collection[str] = ()) -> None:
        super().__init__(message)
        self.message, self.hint, self.options = message, hint, tuple(options)
        if hint:  # a traceback prints notes
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        return self.message

    def add(self, text: str) -> None:
        self.message += text

    def render(self) -> str:
        """Text for stderr: the message, then a blank line and the hint where there is one."""
        hint = f"\n\nhint: {self.hint}" if self.hint else ""
        return f"error: {self.message}{hint}"


class UsageError(BusbwError):
    """Invalid arguments or input file."""

    exit = Exit.USAGE


def similar_names(name: str, names: Collection[str]) -> list[str]:
    """The closest of the names, or up to three with a part that is `name`, or is close to it."""
    by_lower = {known.lower(): known for known in names}
    parts = {part for known in by_lower for part in known.split("-")}
    word = name.lower()
    close = [] if word in parts - by_lower.keys() else get_close_matches(word, by_lower, 1)
    if close:
        return [by_lower[close[0]]]
    part = get_close_matches(word, parts, 1)
    return [known for known in names if part and part[0] in known.lower().split("-")][:3]


def did_you_mean(name: str, names: Collection[str], hint: str) -> str:
    """The hint, after the names that are similar to `name`."""
    similar = similar_names(name, names)
    return f"did you mean {' or '.join(similar)}? {hint}" if similar else hint


def unknown(
    what: str,
    name: str,
    names: Mapping[str, str],
    option: str = "",
    also: str = "",
    options: Collection[str] = (),
) -> UsageError:
    """The error for a name that is in no row of a table of `what`s.

    `names` maps each accepted spelling to the row's own name. `option` begins the message, `also`
    ends the hint. `options` are ids as in BusbwError.
    """
    close = get_close_matches(name.lower(), names, 1)
    suggestion = f"did you mean {names[close[0]]}? " if close else ""
    known = ", ".join(dict.fromkeys(names.values()))
    hint = f"{suggestion}the {what}s are {known}{also}"
    return UsageError(f"{option}unknown {what} '{name}'", hint, options)


class NoMeasurement(BusbwError):
    """No measurement was possible, so there is no result to judge."""

    exit = Exit.UNKNOWN


class TimedOut(NoMeasurement):
    """A time limit was reached."""


class StartFailed(NoMeasurement):
    """The ranks failed to start because of a transient fault; the start is retried once."""


class CudaFailed(NoMeasurement):
    """A call of the CUDA driver failed."""


def first_line(error: BaseException) -> str:
    """The first line of what an error says; the name of its class if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def out_of_memory(error: BaseException) -> NoMeasurement | None:
    """The error for an exception that means that this process gets no more memory of the host or
    of its GPU; None for any other exception.
    """
    if (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or getattr(error, "errno", None) == ENOMEM
    ):
        return NoMeasurement(f"out of memory: {error}".removesuffix(": "), MEMORY_HINT)
    return None
