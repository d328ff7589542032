"""What NCCL's log says that an operation runs, where its profiler interface leaves it open.

NCCL 2.28 to 2.30 report to a profiler only that a kernel over symmetric memory ran, 2.27 not even
that. Their log has its name and channels, in a line for each call (TUNING). So that no timed call
writes such a line, NCCL reads the variables of its log again before the operation, and after it.
"""

from collections.abc import Callable, Sequence

from busbw.core.ran import SYMMETRIC, NcclKernel
from busbw.engines.base import Profiler
from busbw.engines.nccl_log import Log
from busbw.measure.formats import nccl_kernels

REPORTS_CALLS = 5  # NCCL's profiler interface from 2.28 on
# Versions of the interface that give the plugin what it needs to write to the log (NCCL 2.27), and
# that name kernels over symmetric memory (NCCL 2.31).
GIVES_LOGGER, NAMES_SYMMETRIC = 4, 7


class LoggedKernels:
    """The log of this process, of the communicators that `profiler` is asked about."""

    def __init__(self, log: Log, profiler: Profiler) -> None:
        self._log, self._profiler = log, profiler

    @property
    def has_more(self) -> bool:
        """Whether the log may name what the profiler interface does not, and can be asked."""
        if not GIVES_LOGGER <= self._profiler.interface < NAMES_SYMMETRIC:
            return False
        return self._log.has_choices and self._profiler.reads_log_variables

    def is_asked_about(self, kernels: Sequence[NcclKernel]) -> bool:
        """Whether the profiler interface, which reported these kernels, left open what ran."""
        if not kernels:
            return self._profiler.interface < REPORTS_CALLS
        return any(kernel.algorithm == SYMMETRIC and not kernel.variant for kernel in kernels)

    def kernels(self, run: Callable[[], None]) -> list[NcclKernel]:
        """The kernels that the log names while an operation runs."""
        with self._log.with_choices(self._profiler.read_log_variables):
            before = len(self._log.text)
            run()
            return nccl_kernels.kernels(self._log.text[before:])
