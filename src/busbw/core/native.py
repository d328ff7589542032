"""Where the shared library of busbw-native lies: NCCL's plugin, and the transport that busbw.accel sends by."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from busbw.core.errors import NoMeasurement

PACKAGE, LIBRARY = "busbw_native", "plugin/libplugin.so"
OWN_VARIABLE = "BUSBW_PLUGIN"
INSTALL = f"{sys.executable} -m pip install busbw-native   (in a checkout of busbw: pip install ./native)"


def find() -> Path:
    """The library: BUSBW_PLUGIN's, else the one that busbw-native carries. NoMeasurement where there is none."""
    named = os.environ.get(OWN_VARIABLE)
    if not named:
        return _installed()
    path = Path(named).absolute()
    if not path.is_file():
        raise NoMeasurement(f"{OWN_VARIABLE}={named}: no such file", f"unset {OWN_VARIABLE}, or name the library")
    return path


def _installed() -> Path:
    """Asked without importing it, which would take cffi."""
    spec = find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise NoMeasurement(f"busbw-native, which holds the library, is not installed for {sys.executable}", INSTALL)
    path = Path(folders[0]).absolute() / LIBRARY
    if not path.is_file():
        raise NoMeasurement(f"busbw-native in {folders[0]} has no {LIBRARY}", INSTALL.replace("install", "install --force-reinstall"))
    return path
