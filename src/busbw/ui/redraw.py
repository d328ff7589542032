"""A text that replaces the one before on a terminal."""

from busbw.core.unseen import escape_invisible

CLEAR_SCREEN = "\x1b[2J"
CURSOR_HOME = "\x1b[H"  # the cursor goes to the corner
CLEAR_BELOW = "\x1b[J"  # what is below it goes away
CLEAR_LINE = "\x1b[K\n"  # the rest of a line, too


def redrawn(text: str, height: int) -> str:
    """The text, cut to the height of the terminal, with escape sequences that let it replace the
    previous one.
    """
    lines = escape_invisible(text).splitlines()
    if len(lines) >= height:
        hidden = len(lines) - height + 2
        lines[height - 2 :] = [f"... {hidden} more lines: a larger window shows them"]
    return CURSOR_HOME + "".join(f"{line}{CLEAR_LINE}" for line in lines) + CLEAR_BELOW
