"""What a run prints as it goes: the chosen view on stdout, notes on stderr."""

import sys
from pathlib import Path
from typing import Any

from busbw.cli.streams import ReaderGone, answer, stop_writing, talk
from busbw.core.errors import BusbwError
from busbw.measure.events import Ended, Event, Iteration, Note, RowDone, Started, Trained
from busbw.measure.record import Record
from busbw.views import training
from busbw.views.registry import View


class Output:
    """Takes the events of one run: records them and prints the view. `save_unasked`: a run that broke off keeps its rows in a file."""

    def __init__(self, record: Record, view: View, *, save_unasked: bool = True) -> None:
        self.record, self.view, self.save_unasked = record, view, save_unasked
        self._told = False

    def take(self, event: Event) -> None:
        """Record the event and print what follows from it; a reader who has gone ends a run that no file was asked of."""
        self.record.take(event)
        if self.record.problem and not self._told:
            self._told = True
            talk(f"warning: {self.record.problem.message}; measuring goes on, and the file is tried again")
        try:
            self._show(event)
        except ReaderGone:
            if self.record.file is None:
                raise
            stop_writing()
            talk(f"note: nobody reads stdout any more; measuring goes on for {self.record.file} (Ctrl-C ends it)")

    def _show(self, event: Event) -> None:
        """Print what follows from an event."""
        result = self.record.result
        if isinstance(event, Started) and self.view.streams:
            self._print("header", result)
        elif isinstance(event, RowDone) and self.view.streams:
            self._print("row", result, event.row)
        elif isinstance(event, Iteration) and self.view.streams:
            answer(training.iteration(result, event.method, event.number, event.rate))
        elif isinstance(event, Trained) and self.view.streams:
            answer(training.method_end(result, event.run.method))
        elif isinstance(event, Ended):
            self._print("footer", result)
        elif isinstance(event, Note):
            self._note(event)

    def _note(self, note: Note) -> None:
        """nccl-tests has some on stdout, and a line for each rank; in the rows of any other view nobody could read them."""
        if note.answer and self.view.name == "nccl-tests":
            answer(note.text + "\n")
        else:
            talk("\n".join(dict.fromkeys(note.text.splitlines())))

    def _print(self, part: str, *arguments: Any) -> None:
        """One part of the view, at once; the table in colour where a person looks at it."""
        if self.view.name == "table" and not self.record.result.training and sys.stdout is not None and sys.stdout.isatty():
            from rich.console import Console

            from busbw.views import table_rich

            Console(soft_wrap=True).print(getattr(table_rich, part)(*arguments), end="")
            return
        answer(getattr(self.view, part)(*arguments))

    def broke_off(self, reason: str) -> str:
        """After a run that ended early: what became of the rows measured, '' when there are none."""
        record = self.record
        record.broke_off(reason)
        count = len(record.result.rows) or (len(record.result.training.runs) if record.result.training else 0)
        if not count or (record.file is None and not self.save_unasked):
            return ""
        if record.file is None:
            stamp = record.result.start.replace("-", "").replace(":", "").replace(" ", "-")
            try:
                record.keep(Path(f"busbw-result-{stamp}.json"))
            except BusbwError as error:
                return f"the {count} rows measured stand above and could not be saved: {error.message}"
        if record.saved < count:
            return f"{record.saved} of the {count} rows measured are in {record.file}"
        return f"{count} rows were measured and are saved in {record.file}; print them with: busbw show {record.file}"
