"""Invisible characters that change what a reader sees: no text from a file, a host or a user is
shown on a screen with one.
"""

import re

# Controls of terminals (C0, C1), marks and overrides of direction, characters without width,
# separators of lines, tags.
UNSEEN = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
_UNSEEN = re.compile(rf"[{UNSEEN}]|\r(?!\n)")


def escape_invisible(text: str) -> str:
    r"""The text with each invisible character as a JSON escape, such as \u202e."""
    return _UNSEEN.sub(_escaped, text)


def escape_line(text: str) -> str:
    """As `escape_invisible`, and without ends of lines and tabs: text for a line of its own."""
    return re.sub(r"[\r\n\t]", _escaped, escape_invisible(text))


def _escaped(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
