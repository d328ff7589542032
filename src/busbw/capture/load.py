"""A pattern from a file."""

from pathlib import Path

from busbw.core import pattern_lines
from busbw.core.errors import UsageError
from busbw.core.pattern import Pattern


def pattern(path: Path) -> Pattern:
    """The pattern in the file at `path`; UsageError if it cannot be read."""
    try:
        with path.open("rb") as lines:
            return pattern_lines.read(lines, str(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "name a file that busbw capture or busbw pattern has written") from error
