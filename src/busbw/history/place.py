"""Where the history is, and whether finished runs are kept in it."""

from collections.abc import Mapping
from pathlib import Path

from busbw.core.errors import UsageError
from busbw.core.settings import OFF

VARIABLE = "BUSBW_HISTORY"


def kept_in(environment: Mapping[str, str]) -> Path | None:
    """The file that keeps finished runs: BUSBW_HISTORY or the default; None if one of OFF."""
    given = environment.get(VARIABLE, "")
    if given.lower() in OFF:
        return None
    return Path(given).expanduser() if given else default_path(environment)


def history_file(environment: Mapping[str, str]) -> Path:
    """The file that commands read: that of `kept_in`, or the default if runs are not kept."""
    return kept_in(environment) or default_path(environment)


def default_path(environment: Mapping[str, str]) -> Path:
    """`busbw/history.sqlite` under XDG_DATA_HOME, or under ~/.local/share if that is not an
    absolute path (XDG base directories 0.8). UsageError if the user has no home directory.
    """
    data_home = Path(environment.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():
        try:
            data_home = Path.home() / ".local" / "share"
        except RuntimeError as error:
            raise UsageError(
                "the history has no place: HOME is not set, and this user has no home directory",
                "export BUSBW_HISTORY=FILE",
            ) from error
    return data_home / "busbw" / "history.sqlite"
