"""The log of what busbw decides and why, for `-v` and BUSBW_LOG: on stderr, with the host and the
rank, and masked as results are.

Modules log under their own names, so that a program that uses busbw as a library can handle this
log like any other.
"""

import logging
import os
import platform
import sys
from typing import TextIO

from busbw.core.errors import UsageError
from busbw.core.settings import LOG_LEVELS, LOG_VARIABLE
from busbw.core.unseen import escape_invisible


class _MaskedFormatter(logging.Formatter):
    """One line for each message, without secrets and invisible characters."""

    def format(self, record: logging.LogRecord) -> str:
        from busbw.core.masking import masked  # expressions for secrets, for a log alone

        return escape_invisible(masked(super().format(record).replace("\n", "\\n")))


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current stderr. A message that cannot be written is lost without an error."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def switch_on(level: str, rank: int | None = None) -> None:
    """Write this process' log to stderr, from `level` on.

    UsageError for a level that is not in LOG_LEVELS.
    """
    if level not in LOG_LEVELS:
        raise UsageError(
            f"{LOG_VARIABLE}={level}: no such level", f"use one of {', '.join(LOG_LEVELS)}"
        )
    process = platform.node() if rank is None else f"{platform.node()} rank {rank}"
    handler = _StderrHandler()
    handler.setFormatter(_MaskedFormatter(f"[{process}] %(name)s: %(message)s"))
    logger = logging.getLogger("busbw")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def switch_off() -> None:
    """Stop writing this process' log to stderr."""
    logger = logging.getLogger("busbw")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def from_environment(rank: int | None = None) -> None:
    """Switch the log on if BUSBW_LOG asks for it; UsageError as `switch_on`."""
    level = os.environ.get(LOG_VARIABLE)
    if level:
        switch_on(level, rank)
