"""Which lines of stderr are the launcher's own messages, not the ranks'."""

import re

_LAUNCHER_LINE = re.compile(
    r"\[\S+:\d+\] (?:Delaying for \d+ seconds before aborting"
    r"|\d+ more process(?:es)? ha(?:s|ve) sent help message|Set MCA parameter"
    r" \"orte_base_help_aggregate\""
    # of a daemon's ssh, which may have started already
    r"|plm:ssh: Warning: setpgid\(\d+,\d+\) failed in parent)"
    # libevent, of a launcher that closes its ranks' pipes
    r"|\[warn\] Epoll (?:ADD|MOD|DEL)\(\d+\) on fd \d+ failed\."
)
_DASHES = re.compile(r"-{60,}")  # Open MPI's frames have 60, 74 or 76
FRAME_LINES = 40  # the longest of its messages is shorter
_STARRED = re.compile(r"(\[\S+:\d+\]) \*\*\* (An error occurred in Socket closed)?")


class Framing:
    """Recognizes the launcher's own messages.

    They are those between lines of dashes, and what Open MPI's other ranks write when a rank has
    died.
    """

    def __init__(self) -> None:
        self._left = 0  # lines that the open frame may still hold
        self._prefix = ""  # of the lines of Open MPI's other ranks

    def __call__(self, text: str) -> bool:
        """Whether a line of stderr is one of these, or empty."""
        starred = _STARRED.match(text)
        if starred and starred.group(2):
            self._prefix = starred.group(1)
        if _LAUNCHER_LINE.match(text) or (starred and starred.group(1) == self._prefix):
            return True
        if _DASHES.fullmatch(text):
            self._left = 0 if self._left else FRAME_LINES
            return True
        inside, self._left = self._left > 0, max(self._left - 1, 0)
        return inside or not text.strip()
