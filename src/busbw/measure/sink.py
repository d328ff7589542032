"""Records the events of one run and logs its messages; the command line's subclasses print them."""

import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass

from busbw.core.errors import BusbwError, Exit
from busbw.core.rank_messages import Working
from busbw.launch.signal_handlers import signals_ignored
from busbw.measure.events import Event
from busbw.measure.record import RunRecord

INTERRUPTED, TERMINATED = "interrupted", "terminated"  # why a result is not complete
LOG = logging.getLogger("busbw")


@dataclass(frozen=True, slots=True)
class Frontend:
    """How a command line turns an error into its exit code and its text."""

    exit_of: Callable[[BusbwError], int]
    text_of: Callable[[BusbwError], str]


OWN = Frontend(lambda error: int(error.exit), BusbwError.render)


class Sink:
    """Records one run and logs its messages under the name `busbw`.

    A subclass in the command line prints them.
    """

    def __init__(self, record: RunRecord, frontend: Frontend = OWN) -> None:
        self.record, self.frontend = record, frontend

    @property
    def progress(self) -> bool:
        """Whether `working` is called once a second."""
        return False

    def take(self, event: Event) -> None:
        self.record.take(event)

    def working(self, work: Working) -> None:
        """Show what rank 0 is doing."""

    def note(self, text: str) -> None:
        LOG.info("%s", text)

    def error(self, text: str) -> None:
        """Log an error after which this process exits."""
        LOG.error("%s", text)

    def run_aborted(self, reason: str) -> str:
        """Record why the run ended early.

        Returns a sentence about the file of its rows, '' if there is none.
        """
        self.record.run_aborted(reason)
        return ""


def save_on_signal(error: SystemExit | KeyboardInterrupt, sink: Sink) -> tuple[str, int]:
    """Save what was measured when a signal arrived; returns the message and the exit code."""
    if isinstance(error, KeyboardInterrupt):
        reason, text, code = INTERRUPTED, INTERRUPTED, int(Exit.INTERRUPTED)
    else:  # SIGTERM or SIGHUP, sent by schedulers: the exit code contains the signal
        code = error.code if isinstance(error.code, int) else int(Exit.INTERRUPTED)
        name = signal.Signals(code - 128).name if code > 128 else f"exit {code}"
        reason, text = TERMINATED, f"{TERMINATED} ({name})"
    with signals_ignored():
        saved_note = sink.run_aborted(reason)
    return text + (f": {saved_note}" if saved_note else ""), code
