"""Where a user's own table of reference curves is."""

from collections.abc import Mapping
from pathlib import Path

from busbw.core.settings import OFF

VARIABLE = "BUSBW_REFERENCE"


def own_file(environment: Mapping[str, str]) -> Path | None:
    """The file of a user's own runs: BUSBW_REFERENCE, or `busbw/reference.json` under
    XDG_DATA_HOME, or under ~/.local/share if that is not an absolute path; None if the variable
    is one of OFF, or the user has no home directory.
    """
    given = environment.get(VARIABLE, "")
    if given.lower() in OFF:
        return None
    if given:
        return Path(given).expanduser()
    data_home = Path(environment.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():
        home = environment.get("HOME", "")
        try:
            data_home = Path(home or "~").expanduser() / ".local" / "share"
        except RuntimeError:
            return None
    return data_home / "busbw" / "reference.json"
