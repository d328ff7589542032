"""The folder for what busbw can make again: compiled kernels and unpacked libraries."""

import os
from pathlib import Path


def cache_folder(part: str) -> Path | None:
    """The folder of a part of busbw under XDG_CACHE_HOME or ~/.cache, which may not exist yet."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return root / "busbw" / part
