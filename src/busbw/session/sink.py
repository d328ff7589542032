"""Where a run's events and messages go."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from busbw.core import spelling
from busbw.core.errors import BusbwError
from busbw.core.reports import Working
from busbw.measure.events import Event
from busbw.measure.record import Record

LOG = logging.getLogger("busbw")


@dataclass(frozen=True, slots=True)
class Frontend:
    """A command line's exit codes of errors, and its spelling of options (core.spelling)."""

    exit_of: Callable[[BusbwError], int]
    spelling: int


OWN = Frontend(lambda error: int(error.exit), spelling.RUN)


class Sink:
    """Records one run and logs its messages under the name `busbw`. A subclass in the command line prints them."""

    def __init__(self, record: Record, frontend: Frontend = OWN) -> None:
        self.record, self.frontend = record, frontend

    @property
    def progress(self) -> bool:
        """Whether `working` is called once a second."""
        return False

    def take(self, event: Event) -> None:
        """Record an event."""
        self.record.take(event)

    def working(self, work: Working) -> None:
        """Show what rank 0 is doing."""

    def note(self, text: str) -> None:
        """Log a message."""
        LOG.info("%s", self.rendered(text))

    def error(self, text: str) -> None:
        """Log an error after which this process exits."""
        LOG.error("%s", self.rendered(text))

    def rendered(self, text: str) -> str:
        """The text with options in the frontend's spelling."""
        return spelling.render(text, self.frontend.spelling)

    def broke_off(self, reason: str) -> str:
        """Record why the run ended early; returns a sentence about the file of its rows, '' if there is none."""
        self.record.broke_off(spelling.render(reason))
        return ""
