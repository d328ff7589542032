"""The library of NCCL plugins on this host: its path, and whether NCCL can load it."""

import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from busbw.core import native
from busbw.core.errors import NoMeasurement
from busbw.core.native import OWN_VARIABLE
from busbw.core.networks import BY_NAME, LIBRARY_VARIABLE
from busbw.host.interfaces import MBIT

LOG = logging.getLogger(__name__)
PATH_BYTES = 254  # NCCL's buffer has 255 with the terminating zero; it ignores longer paths
LIST_SEPARATOR = ","  # NCCL 2.27 and newer take several plugins
SYMBOLS = ("ncclNetPlugin_v8", "ncclNetPlugin_v11")  # any NCCL from 2.20 on finds one of them
LOAD_LIMIT_S = 10.0
_LACKS = "it has no "
# Opens the library as NCCL does, and exits with the names of missing symbols.
_LOAD = f"""
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
missing = [name for name in sys.argv[2:] if not hasattr(library, name)]
sys.exit("{_LACKS}" + ", ".join(missing) if missing else 0)
"""


def find() -> Path:
    """As core.native.find; also raises NoMeasurement for a path that NCCL cannot use."""
    path = native.find()
    size = len(os.fsencode(path))
    if size > PATH_BYTES:
        raise NoMeasurement(
            f"{path}: the path has {size} bytes, NCCL takes at most {PATH_BYTES}",
            f"ln -s {path} /tmp/ and set {OWN_VARIABLE} to the link",
        )
    if LIST_SEPARATOR in str(path):
        raise NoMeasurement(
            f"{path}: NCCL reads the comma as the end of the path",
            f"set {OWN_VARIABLE} to a link without a comma",
        )
    LOG.info("the plugin is %s", path)
    return path


def check(path: Path, limit_s: float = LOAD_LIMIT_S) -> None:
    """NoMeasurement if the library does not load, or lacks a table that NCCL looks for.

    A separate process loads it, so that a crash or hang while loading does not affect this one.
    """
    command = [sys.executable, "-c", _LOAD, str(path), *SYMBOLS]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=limit_s, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NoMeasurement(f"{path} does not load within {limit_s:g} s", f"ldd {path}") from error
    if done.returncode < 0:
        raise NoMeasurement(
            f"loading {path} kills the process with {signal.Signals(-done.returncode).name}",
            native.install(),
        )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "no error message"
        hint = native.install() if reason.startswith(_LACKS) else f"ldd {path}"
        reason = reason.removeprefix("OSError: ").removeprefix(f"{path}: ")
        raise NoMeasurement(f"NCCL cannot load {path}: {reason}", hint)


def version(path: Path) -> str:
    """The version of busbw-native in a library that passed `check`; '' if it is too old to say."""
    library = ctypes.CDLL(str(path))
    if not hasattr(library, "busbw_version"):
        return ""
    library.busbw_version.restype, library.busbw_version.argtypes = ctypes.c_char_p, ()
    text: bytes = library.busbw_version()
    return text.decode()


def variables(net: str) -> dict[str, str]:
    """The environment variables for --net on this host, none for an empty `net`.

    NoMeasurement if a plugin is needed and not installed.
    """
    if not net:
        return {}
    row = BY_NAME[net]
    library = {LIBRARY_VARIABLE: str(find())} if row.plugin else {}
    return library | row.variables


def rate(environ: Mapping[str, str]) -> float | None:
    """Bytes per second of all interfaces that the plugin would use with `environ`.

    None if one of them does not state its speed. The library answers, because only it decides which
    interfaces it uses. NoMeasurement if it is not on this host.
    """
    path = find()
    try:
        read_mbps = ctypes.CDLL(str(path)).busbw_net_mbps
    except (OSError, AttributeError):
        return None  # NCCL reports a library that does not load
    read_mbps.restype, read_mbps.argtypes = ctypes.c_uint32, (ctypes.c_char_p,)
    assignments = [os.fsencode(f"{name}={value}") + b"\0" for name, value in environ.items()]
    mbps: int = read_mbps(b"".join(assignments))
    return mbps * MBIT or None
