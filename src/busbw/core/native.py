"""Finds the shared library of busbw-native: NCCL's plugin, and what busbw_accel calls."""

import ctypes
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from busbw.core.errors import NoMeasurement

PACKAGE, LIBRARY = "busbw_native", "plugin/libplugin.so"
OWN_VARIABLE = "BUSBW_PLUGIN"
Signature = tuple[Any, tuple[Any, ...]]  # what a C function returns, and what it takes


def install(option: str = "") -> str:
    """The command that installs busbw-native, with an option of `pip install`."""
    words = f"pip install {option}".rstrip()
    return f"{sys.executable} -m {words} busbw-native   (in a checkout of busbw: {words} ./native)"


def find() -> Path:
    """The path in BUSBW_PLUGIN, or else that of the library in busbw-native.

    NoMeasurement if there is no such file.
    """
    value = os.environ.get(OWN_VARIABLE)
    if not value:
        return _find_installed()
    path = Path(value).absolute()
    if not path.is_file():
        raise NoMeasurement(
            f"{OWN_VARIABLE}={value}: no such file",
            f"unset {OWN_VARIABLE}, or set it to the path of the library",
        )
    return path


def find_optional() -> Path | None:
    """As `find`, but None where busbw-native is not installed. NoMeasurement if BUSBW_PLUGIN names
    no file.
    """
    try:
        return find()
    except NoMeasurement:
        if os.environ.get(OWN_VARIABLE):
            raise
        return None


def _find_installed() -> Path:
    """The library in busbw-native. The package is not imported, which would need cffi."""
    spec = find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise NoMeasurement(f"busbw-native is not installed for {sys.executable}", install())
    path = Path(folders[0]).absolute() / LIBRARY
    if not path.is_file():
        raise NoMeasurement(
            f"busbw-native in {folders[0]} has no {LIBRARY}", install("--force-reinstall")
        )
    return path


def load(path: Path, functions: Mapping[str, Signature], purpose: str) -> ctypes.CDLL:
    """The library with these functions.

    NoMeasurement if it cannot be loaded or lacks one; `purpose`: what it then cannot do.
    """
    try:
        library = ctypes.CDLL(str(path))
        declare(library, functions)
    except (OSError, AttributeError) as error:
        raise NoMeasurement(f"{path} does not {purpose}: {error}", install()) from error
    return library


def declare(library: ctypes.CDLL, functions: Mapping[str, Signature]) -> None:
    """Set the types of functions; AttributeError if the library lacks one."""
    for name, (returns, takes) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = returns, takes


class Room(ctypes.Structure):
    """Where a function of the library writes its error message: address and bytes."""

    _fields_ = (("at", ctypes.c_char_p), ("bytes", ctypes.c_size_t))


class ErrorText:
    """A buffer for the error messages of the library."""

    BYTES = 500

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(self.BYTES)

    def room(self) -> Room:
        return Room(ctypes.cast(self._text, ctypes.c_char_p), self.BYTES)

    def message(self) -> str:
        """What the last failed call wrote."""
        return self._text.value.decode("utf-8", "replace")
