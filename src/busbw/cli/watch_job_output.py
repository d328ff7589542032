"""What `busbw watch job` prints: a screen on a terminal, lines to a pipe, or JSON."""

import shutil

from msgspec.structs import replace

from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import is_terminal, takes_escapes, width
from busbw.job.live import text as view
from busbw.job.live.episodes import Episodes, VerdictTotals, key, unix_s
from busbw.job.live.screen import JobScreen
from busbw.job.live.types import JobInterval
from busbw.ui.redraw import CLEAR_SCREEN, redrawn

STACKS = "py-spy"
TABLE, JSON, NOTHING = "table", "json", "nothing"


class JobOutput:
    """Prints a watch; `name` is what the folder of the job is called."""

    def __init__(self, format_name: str, name: str, *, once: bool) -> None:
        self._format, self._once = format_name, once
        self._episodes, self._totals = Episodes(), VerdictTotals()
        self._begin_s = self._end_s = 0.0
        self._shown: object = None
        self._noted: set[str] = set()
        self._lacks_stacks = shutil.which(STACKS) is None  # which is said once
        self._screen: JobScreen | None = None
        if format_name == TABLE and not once and is_terminal() and takes_escapes():
            self._screen = JobScreen(name)
            print_out(CLEAR_SCREEN, controls=True)

    def note(self, interval: JobInterval) -> None:
        """Say once what could not be read; a screen has it in each."""
        for reason in interval.unread:
            if reason not in self._noted and not self._screen:
                print_err(f"note: {reason}")
        self._noted.update(interval.unread)

    def show(self, interval: JobInterval) -> None:
        self._end_s = unix_s(interval)
        self._begin_s = self._begin_s or self._end_s
        ended = self._episodes.take(interval)
        if ended:
            self._totals.add(ended)
        new = key(interval) != self._shown
        if self._screen:
            self._screen.take(self._installable(interval))
            height = shutil.get_terminal_size().lines
            text = redrawn(self._screen.text(width(), height), height)
            print_out(text, controls=True)
        elif self._format == JSON:
            print_out(view.line(interval))
        elif self._format == TABLE:
            shown = self._installable(interval) if new else interval
            print_out(view.text(shown, width(), evidence=new))
        self._shown = key(interval)

    def _installable(self, interval: JobInterval) -> JobInterval:
        """The same; where STACKS is to be typed and is not here, its command says how to install
        it: of lines the first, a screen always.
        """
        if not self._lacks_stacks or STACKS not in interval.next:
            return interval
        self._lacks_stacks = self._screen is not None
        separator = "; " if "#" in interval.next else "  # "
        return replace(interval, next=f"{interval.next}{separator}pip install {STACKS}")

    def end(self) -> None:
        """Say what was seen in all, unless it was one look."""
        if self._once or self._episodes.current is None:
            return
        self._totals.add(self._episodes.current)
        text = view.closing(self._totals, self._end_s - self._begin_s, width())
        if self._format == TABLE:
            print_out(text)
        else:
            print_err(text.rstrip("\n"))
