"""Loads busbw-native for the features of an engine: loop, tuner and profiler."""

import ctypes
from collections.abc import Mapping
from typing import Any

from busbw.core import native
from busbw.core.errors import NoMeasurement
from busbw.core.version import __version__

UPGRADE = native.install("--upgrade")


def library(functions: Mapping[str, native.Signature]) -> Any:
    """busbw-native with these functions.

    NoMeasurement if it is not on this host, or is of another version or build.
    """
    path = native.find()
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.busbw_version.restype, loaded.busbw_version.argtypes = ctypes.c_char_p, ()
        version = loaded.busbw_version().decode()
    except (OSError, AttributeError) as error:
        raise NoMeasurement(f"busbw-native cannot be loaded: {error}", UPGRADE) from error
    if version != __version__:
        raise NoMeasurement(f"busbw-native is {version}, and busbw is {__version__}", UPGRADE)
    try:
        native.declare(loaded, functions)
    except AttributeError as error:
        raise of_another_build(str(error)) from error
    return loaded


def of_another_build(difference: str) -> NoMeasurement:
    """The error for a library of this version that does not fit all the same."""
    return NoMeasurement(f"busbw-native {__version__} is of another build: {difference}", UPGRADE)
