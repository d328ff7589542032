"""Exit codes of `busbw`, one row each; the docs page and the tests are made from these rows.

The compat face keeps the codes of nccl-tests instead (`NCCL_TESTS_EXITS`).
"""

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of every busbw command but the compat face."""

    OK = 0
    BAD = 1
    USAGE = 2
    UNKNOWN = 3
    BUG = 4
    INTERRUPTED = 130


EXIT_MEANING: dict[Exit, str] = {
    Exit.OK: "measured, and fine",
    Exit.BAD: "measured, and the answer is bad: wrong data, or slower than allowed",
    Exit.USAGE: "the command line or a file it names cannot be meant",
    Exit.UNKNOWN: "could not tell: no GPU, NCCL or MPI missing, a rank or host lost",
    Exit.BUG: "a bug in busbw",
    Exit.INTERRUPTED: "interrupted; what was measured is saved",
}


class NcclTestsExit(IntEnum):
    """Exit code of a binary of nccl-tests, and so of the compat face (testResult_t there)."""

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
    NcclTestsExit.OK: "fine",
    NcclTestsExit.INTERNAL: "internal error",
    NcclTestsExit.CUDA: "CUDA error",
    NcclTestsExit.NCCL: "NCCL or MPI error",
    NcclTestsExit.TIMEOUT: "timeout (-T)",
    NcclTestsExit.NOT_IMPLEMENTED: "not implemented, or fewer GPUs than asked for",
    NcclTestsExit.INVALID_USAGE: "invalid usage",
    NcclTestsExit.WRONG_DATA: "wrong data, or below 0.9 x NCCL_TESTS_MIN_BW",
    NcclTestsExit.BAD_ARGUMENTS: "bad arguments",
}
