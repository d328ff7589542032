"""Exit codes, one row each: those of `busbw`, of its line for a monitor, and of the compat
commands, which are nccl-tests' own.
"""

from enum import IntEnum
from typing import Self


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
        (
            "no measurement possible: no GPU, NCCL or MPI missing, a rank or host lost; a part or a"
            " figure that could not be judged"
        ),
    )
    BUG = 4, "a bug in busbw"
    INTERRUPTED = 130, "interrupted; completed measurements are saved"


class NagiosExit(_Code):
    """Exit code of `busbw check --brief`, which is that of a Nagios plugin; the name is the word
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
