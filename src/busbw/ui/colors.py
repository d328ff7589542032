"""Colors for a terminal: the verdicts that begin a line or end a row of a table, and bars.

The text without them is the same.
"""

import re

from busbw.ui.number_formats import BARS

RED, GREEN, YELLOW, CYAN, DIM = "1;31", "1;32", "1;33", "36", "2"

_STYLES = (
    (RED, r"^(?:FAIL|SLOWER|BUSBW CRITICAL)(?= )|^(?:fail|error|wrong data)(?=:)"),
    (YELLOW, r"^(?:WARN|UNKNOWN|NO DATA|BUSBW WARNING|BUSBW UNKNOWN)(?= )|^(?:warn|unknown)(?=:)"),
    (YELLOW, r"^the sweep did not end"),
    (GREEN, r"^(?:PASS|FINE|BUSBW OK)(?= )|^pass(?=:)"),
    (DIM, r"^SKIP(?= )"),
    (RED, r"(?<=  )slower$|^slower than expected(?=:)"),
    (YELLOW, r"(?<=  )(?:ambiguous|unmatched)$"),
    (GREEN, r"(?<=  )faster$|^(?:as|faster than) expected(?=:)"),
    (CYAN, f"[{BARS}]+"),
)
_PATTERNS = tuple((style, re.compile(pattern, re.MULTILINE)) for style, pattern in _STYLES)


def painted(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def with_colors(text: str) -> str:
    """The text with its verdicts and bars colored."""
    for style, pattern in _PATTERNS:
        text = pattern.sub(painted(r"\g<0>", style), text)
    return text
