"""A status line on the terminal, shown while nothing else is printed."""

import sys
import time

from busbw.cli.streams import before_output
from busbw.cli.terminal import takes_escapes
from busbw.core.rank_messages import Working
from busbw.core.unseen import escape_invisible

QUIET_S = 2.0  # time without other output until the line appears
_ERASE = "\r\x1b[2K"


class StatusLine:
    """The line, on stderr if that is a terminal. Any other output erases it first."""

    def __init__(self) -> None:
        self.visible = sys.stderr is not None and sys.stderr.isatty() and takes_escapes()
        self._quiet_since, self._shown = time.monotonic(), False
        before_output(self.erase)

    @property
    def is_due(self) -> bool:
        """Whether nothing was printed in the last QUIET_S seconds."""
        return time.monotonic() - self._quiet_since >= QUIET_S

    def show(self, work: Working) -> None:
        """Write the line again if it is due."""
        if not self.visible or not self.is_due:
            return
        left = ""
        if work.left_s is not None:
            left = f", about {work.left_s / 60:.0f} min left"
            if work.left_s < 120:
                left = f", about {work.left_s:.0f} s left"
        text = f"{work.phase}: {work.detail}" if work.detail else work.phase
        sys.stderr.write(f"{_ERASE}{escape_invisible(text)}{left}")
        sys.stderr.flush()
        self._shown = True

    def erase(self) -> None:
        """Remove the line before other output."""
        if self._shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
        self._quiet_since, self._shown = time.monotonic(), False
