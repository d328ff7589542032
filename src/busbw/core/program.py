"""How busbw starts itself once more, on this host or on another.

An installed busbw is `python -m busbw`; other hosts must have it at the same path. The single file
is `python busbw.pyz`, with the same two paths on each host.
"""

import sys

_file: list[str] = []  # the single file that this process was started from


def set_single_file(file: str) -> None:
    """Note the absolute path of the single file that started this process."""
    _file[:] = [file]


def single_file() -> str:
    """The path of the single file that started this process; '' if busbw is installed."""
    return _file[0] if _file else ""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of busbw with this Python."""
    return [sys.executable, *_file, "-m", module, *arguments]
