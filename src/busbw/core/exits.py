"""Exit codes, one row each: those of `busbw`, and those of the compat commands, which are nccl-tests' own."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of every `busbw` command."""

    OK = 0
    BAD = 1
    USAGE = 2
    UNKNOWN = 3
    BUG = 4
    INTERRUPTED = 130


EXIT_MEANING: dict[Exit, str] = {
    Exit.OK: "success",
    Exit.BAD: "measured, but the result is bad: wrong data, or slower than allowed",
    Exit.USAGE: "invalid arguments or input file",
    Exit.UNKNOWN: "no measurement possible: no GPU, NCCL or MPI missing, a rank or host lost",
    Exit.BUG: "a bug in busbw",
    Exit.INTERRUPTED: "interrupted; completed measurements are saved",
}


class NcclTestsExit(IntEnum):
    """Exit code of the binaries of nccl-tests (its testResult_t), and so of the compat commands."""

    OK = 0
    INTERNAL = 1
    CUDA = 2
    NCCL = 3
    TIMEOUT = 4
    NOT_IMPLEMENTED = 5
    INVALID_USAGE = 6
    WRONG_DATA = 7
    BAD_ARGUMENTS = 255


NCCL_TESTS_EXIT_MEANING: dict[NcclTestsExit, str] = {
    NcclTestsExit.OK: "success",
    NcclTestsExit.INTERNAL: "internal error",
    NcclTestsExit.CUDA: "CUDA error",
    NcclTestsExit.NCCL: "NCCL or MPI error",
    NcclTestsExit.TIMEOUT: "timeout (-T)",
    NcclTestsExit.NOT_IMPLEMENTED: "not implemented, or fewer GPUs than requested",
    NcclTestsExit.INVALID_USAGE: "invalid usage",
    NcclTestsExit.WRONG_DATA: "wrong data, or below 0.9 x NCCL_TESTS_MIN_BW",
    NcclTestsExit.BAD_ARGUMENTS: "bad arguments",
}
