"""The default path of the history."""

from collections.abc import Mapping
from pathlib import Path


def default_path(environment: Mapping[str, str]) -> Path:
    """`busbw/history.sqlite` under XDG_DATA_HOME, or under ~/.local/share if that is not an absolute path (XDG base directories 0.8)."""
    named = Path(environment.get("XDG_DATA_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".local" / "share") / "busbw" / "history.sqlite"
