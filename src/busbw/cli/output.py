"""Prints what a run reports, the result on stdout, messages on stderr, and gives its exit code."""

import contextlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from busbw.cli.status import StatusLine
from busbw.cli.streams import ReaderGone, print_err, print_out, stop_writing
from busbw.cli.terminal import width
from busbw.core.cells import figures
from busbw.core.errors import BusbwError, Exit, NoMeasurement, UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.core.rank_messages import Working
from busbw.core.result import Outcome, Result
from busbw.engines.registry import is_in_process
from busbw.measure.events import Ended, Event, Note, RowDone, Started
from busbw.measure.formats.one_line import first_look
from busbw.measure.job import Job
from busbw.measure.record import RunRecord
from busbw.measure.sink import OWN, Frontend, Sink
from busbw.measure.target import LaunchTarget
from busbw.report.registry import View

BRIEF = "brief"


def exit_code(result: Outcome | None, fail_on: Verdict = Verdict.FAIL) -> Exit:
    """1 for wrong data, for a log of a run that failed, and for a warning if that is `fail_on`.

    Rank 0 alone has rows, and is judged; OK for the others. A finding that is unknown changes
    nothing: no option asked for it.
    """
    if result is None:
        return Exit.OK
    verdicts = [finding.verdict for finding in result.findings]
    if result.wrong():
        verdicts.append(Verdict.FAIL)
    return exit_of((verdict for verdict in verdicts if verdict is not Verdict.UNKNOWN), fail_on)


def print_command(job: Job, where: LaunchTarget) -> int:
    """Print the launcher's command line, for --dry-run."""
    if is_in_process(job.engine):
        raise UsageError(
            "--dry-run: this engine runs in this process and starts no ranks", "leave out --dry-run"
        )
    from busbw.measure.launch_plan import launcher_command

    prepared = launcher_command(job, where)
    print_out(shlex.join(prepared.argv) + "\n")
    return int(Exit.OK)


class RunOutput(Sink):
    """Prints messages, and saves the rows of a run that ended early. Without --json they go to a
    new file if `save_unasked`.
    """

    def __init__(
        self, record: RunRecord, frontend: Frontend = OWN, *, save_unasked: bool = True
    ) -> None:
        super().__init__(record, frontend)
        self.save_unasked = save_unasked
        self._warned = False
        self._status = StatusLine()

    @property
    def progress(self) -> bool:
        """Whether stderr is a terminal."""
        return self._status.visible

    def working(self, work: Working) -> None:
        """Show the current work if nothing was printed for a while."""
        self._status.show(work)

    def take(self, event: Event) -> None:
        """Record and print the event. Once stdout is closed, only a run with a file continues."""
        super().take(event)
        if self.record.problem and not self._warned:
            self._warned = True
            problem = self.record.problem.message
            print_err(f"warning: {problem}; measuring continues, and the file will be tried again")
        try:
            if isinstance(event, Note):
                self.print_note(event)
            elif self.record.result is not None:
                self.show(event, self.record.result)
        except ReaderGone:
            if self.record.file is None:
                raise
            stop_writing()
            print_err(
                f"note: stdout was closed; measuring continues for {self.record.file} (Ctrl-C"
                " ends it)"
            )

    def show(self, event: Event, result: Outcome) -> None:
        """Print the event."""

    def print_note(self, note: Note) -> None:
        """Print a note; a line that several ranks sent is printed once."""
        print_err("\n".join(dict.fromkeys(note.text.splitlines())))

    def note(self, text: str) -> None:
        print_err(text)

    error = note

    def run_aborted(self, reason: str) -> str:
        """Save what was measured; returns a sentence about the file, '' if nothing was measured."""
        record = self.record
        super().run_aborted(reason)
        count = record.measured
        if not count or not record.result or (record.file is None and not self.save_unasked):
            return ""
        if record.file is None:
            stamp = record.result.start.replace("-", "").replace(":", "").replace(" ", "-")
            try:
                record.keep(Path(f"busbw-result-{stamp}.json"))
            except BusbwError as error:
                return (
                    f"the {count} rows measured are above and could not be saved: {error.message}"
                )
        file = record.elsewhere or record.file
        if record.saved < count:
            return f"{record.saved} of the {count} rows measured are in {file}"
        instead = f", as {record.file} cannot be written" if record.elsewhere else ""
        rows = "1 row was" if count == 1 else f"{count} rows were"
        return f"{rows} measured and saved in {file}{instead}; print with: busbw show {file}"


class AtEnd(RunOutput):
    """Prints the whole result when the run has ended, by `render` with the terminal's width."""

    def __init__(
        self,
        record: RunRecord,
        render: Callable[[Any, int | None], str],
        *,
        save_unasked: bool = True,
    ) -> None:
        super().__init__(record, save_unasked=save_unasked)
        self._render = render

    def show(self, event: Event, result: Outcome) -> None:
        if isinstance(event, Ended):
            print_out(self._render(result, width()))

    def run_aborted(self, reason: str) -> str:
        """Print what was measured, then do as every output."""
        result = self.record.result
        if result is not None and result.measured:
            # A failure to print must not hide the reason why the run ended.
            with contextlib.suppress(ReaderGone, NoMeasurement):
                print_out(self._render(result, width()))
        return super().run_aborted(reason)


class SweepOutput(RunOutput):
    """Prints a sweep in one of the views. `refuse` raises a BusbwError if the result could not be
    judged.
    """

    def __init__(
        self,
        record: RunRecord,
        view: View,
        frontend: Frontend = OWN,
        *,
        save_unasked: bool = True,
        refuse: Callable[[Result], None] | None = None,
    ) -> None:
        super().__init__(record, frontend, save_unasked=save_unasked)
        self.view, self.refuse = view, refuse
        self._printed = 0

    def run_aborted(self, reason: str) -> str:
        """Print the rows that were to be measured again, then do as every output."""
        result = self.record.result
        if isinstance(result, Result) and self.view.streams:
            # A failure to print must not hide the reason why the run ended.
            with contextlib.suppress(ReaderGone, NoMeasurement):
                for row in result.rows[self._printed :]:
                    self._print("row", result, row)
        return super().run_aborted(reason)

    def take(self, event: Event) -> None:
        """Before the first size, when machine and ideal are known, `refuse` may end the run."""
        result = event.result if isinstance(event, Started) else None
        if self.refuse is not None and isinstance(result, Result):
            self.refuse(result)
        super().take(event)

    def show(self, event: Event, result: Outcome) -> None:
        """Print header, rows and footer; a view that does not stream prints all with the footer.

        Rows of precise timing are final after many rounds. Where no status line shows that, the
        first round's go to stderr, unless they come fast.
        """
        assert isinstance(result, Result)
        if isinstance(event, Started) and self.view.streams:
            self._print("header", result)
        elif isinstance(event, RowDone) and event.final and self.view.streams:
            wrong = any(figure.cell.wrong for figure in figures(event.row))
            self._print("row", result, event.row, alarm=wrong)
            self._printed += 1
        elif isinstance(event, RowDone) and self.view.streams:
            is_first = len(figures(event.row)[0].cell.visits or ()) <= 1
            if is_first and self._status.is_due and not self._status.visible:
                print_err(f"measured once: {first_look(event.row)}")
        elif isinstance(event, Ended):
            self._print("footer", result)

    def print_note(self, note: Note) -> None:
        """Print a note; in the nccl-tests view, what nccl-tests writes to stdout goes there."""
        if note.answer and self.view.name == "nccl-tests":
            print_out(note.text + "\n")
        else:
            super().print_note(note)

    def _print(self, part: str, *arguments: Any, alarm: bool = False) -> None:
        print_out(getattr(self.view, part)(*arguments), alarm=alarm)


class JsonOutput(RunOutput):
    """Prints the result as JSON at the end."""

    def show(self, event: Event, result: Outcome) -> None:
        if isinstance(event, Ended):
            from busbw.report import results

            print_out(results.render(result))
