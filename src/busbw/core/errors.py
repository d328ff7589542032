"""The errors busbw raises on purpose, and the exit code each one ends with.

BusbwError            says what, where and the value seen; `hint` is the command or change that mends it
├── UsageError        the words on the command line cannot be meant                         exit 2
└── NoMeasurement        nothing could be measured: no GPU, no MPI, a rank or host was lost    exit 3
    ├── TimedOut      it took longer than a limit
    ├── StartFailed   the ranks did not come to start, of a fault that passes
    └── CudaFailed    a CUDA call failed

Anything else that escapes is a bug in busbw and ends with exit 4.
"""

from busbw.core.exits import Exit


class BusbwError(Exception):
    """An error with a reason and a hint; `exit` is the process exit code it leads to."""

    exit: Exit = Exit.BUG

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def render(self) -> str:
        """Text for stderr: the message, then a blank line and the hint where there is one."""
        text = f"error: {self.message}"
        return f"{text}\n\nhint: {self.hint}" if self.hint else text


class UsageError(BusbwError):
    """The command line (or a file it names) cannot be meant."""

    exit = Exit.USAGE


class NoMeasurement(BusbwError):
    """Nothing could be measured, so there is no answer, good or bad."""

    exit = Exit.UNKNOWN


class TimedOut(NoMeasurement):
    """Something took longer than its limit."""


class StartFailed(NoMeasurement):
    """The ranks did not come to start, of a fault that passes: it is tried once more."""


class CudaFailed(NoMeasurement):
    """A call of the CUDA driver failed."""
