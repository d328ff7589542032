"""The library of NCCL plugins on this host: where it lies, and whether NCCL could load it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from busbw.core import native
from busbw.core.errors import NoMeasurement
from busbw.core.native import INSTALL, OWN_VARIABLE
from busbw.core.networks import BY_NAME, LIBRARY_VARIABLE

PATH_BYTES = 254  # NCCL keeps it in 255, its terminating zero included, and ignores a longer one
LIST_SEPARATOR = ","  # NCCL 2.27 and newer take several plugins
SYMBOLS = ("ncclNetPlugin_v8", "ncclNetPlugin_v11")  # for NCCL 2.20 to 2.27, and from 2.28 on
LOAD_LIMIT_S = 10.0
_LACKS = "it has no "
# As NCCL opens it; symbols that are not there end the program with their names.
_LOAD = f"""
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
missing = [name for name in sys.argv[2:] if not hasattr(library, name)]
sys.exit("{_LACKS}" + ", ".join(missing) if missing else 0)
"""


def find() -> Path:
    """As core.native.find; NoMeasurement also where NCCL could not name it."""
    path = native.find()
    size = len(os.fsencode(path))
    if size > PATH_BYTES:
        raise NoMeasurement(
            f"{path}: the path has {size} bytes, and NCCL takes {PATH_BYTES}", f"ln -s {path} /tmp/ and set {OWN_VARIABLE} to the link"
        )
    if LIST_SEPARATOR in str(path):
        raise NoMeasurement(f"{path}: NCCL takes the comma for the end of the name", f"set {OWN_VARIABLE} to a link without a comma")
    return path


def check(path: Path, limit_s: float = LOAD_LIMIT_S) -> None:
    """NoMeasurement where the library does not load, or lacks a table that NCCL looks for.

    Loaded in a process of its own: what ends or stops that one does not end busbw.
    """
    command = [sys.executable, "-c", _LOAD, str(path), *SYMBOLS]
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit_s, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoMeasurement(f"{path} does not load within {limit_s:g} s", f"ldd {path}") from error
    if done.returncode < 0:
        raise NoMeasurement(f"{path} ends the process that loads it, by {signal.Signals(-done.returncode).name}", INSTALL)
    if done.returncode:
        why = (done.stderr.decode(errors="replace").strip().splitlines() or ["without a word"])[-1]
        hint = INSTALL if why.startswith(_LACKS) else f"ldd {path}"
        why = why.removeprefix("OSError: ").removeprefix(f"{path}: ")
        raise NoMeasurement(f"{path} is no plugin that NCCL could load: {why}", hint)


def variables(net: str) -> dict[str, str]:
    """What NCCL's environment on this host gets for --net; nothing where there is none. NoMeasurement where the plugin is not here."""
    if not net:
        return {}
    row = BY_NAME[net]
    return {**({LIBRARY_VARIABLE: str(find())} if row.plugin else {}), **row.variables}
