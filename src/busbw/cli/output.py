"""What a run prints as it goes: the chosen view on stdout, notes on stderr."""

import os
import sys
from pathlib import Path
from typing import Any

from busbw.core.errors import BusbwError
from busbw.core.exits import Exit
from busbw.core.result import Result
from busbw.measure.events import Ended, Event, Note, RowDone, Started
from busbw.measure.record import Record, save
from busbw.views.registry import View


class Output:
    """Takes the events of one run: records them and prints the view."""

    def __init__(self, record: Record, view: View) -> None:
        self.record, self.view = record, view

    def take(self, event: Event) -> None:
        """Record the event and print what follows from it, also when the record's file cannot be written."""
        try:
            self.record.take(event)
        finally:
            self._show(event)

    def _show(self, event: Event) -> None:
        result = self.record.result
        if isinstance(event, Started) and self.view.streams:
            self._print("header", result)
        elif isinstance(event, RowDone) and self.view.streams:
            self._print("row", result, event.row)
        elif isinstance(event, Ended):
            self._print("footer", result)
        elif isinstance(event, Note):
            talk(event.text)

    def _print(self, part: str, *arguments: Any) -> None:
        """One part of the view, at once; the table in colour where a person looks at it."""
        if self.view.name == "table" and sys.stdout.isatty():
            from rich.console import Console

            from busbw.views import table_rich

            Console(soft_wrap=True).print(getattr(table_rich, part)(*arguments), end="")
            return
        sys.stdout.write(getattr(self.view, part)(*arguments))
        sys.stdout.flush()

    def kept(self) -> str:
        """After a run that broke off: saves the rows measured and says where; '' when there are none."""
        result: Result = self.record.result
        if not result.rows:
            return ""
        count = len(result.rows)
        file = self.record.file or Path(f"busbw-result-{result.start.replace('-', '').replace(':', '').replace(' ', '-')}.json")
        if self.record.file is None:
            try:
                save(result, file)
            except BusbwError as error:
                return f"the {count} rows measured stand above and could not be saved: {error.message}"
        elif self.record.saved < count:
            return f"{self.record.saved} of the {count} rows measured are in {file}"
        return f"{count} rows were measured and are saved in {file}; print them with: busbw show {file}"


def stop_writing() -> int:
    """The reader of stdout (head, less) has seen enough: nothing more is written, and that is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return int(Exit.OK)


def talk(text: str) -> None:
    """A line for the person, never for a program."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
