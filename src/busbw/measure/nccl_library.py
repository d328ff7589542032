"""The NCCL of --nccl: chosen before the ranks start, loaded in each before anything else loads one,
and confirmed once the engine has started.
"""

import ctypes
import os
import platform
from pathlib import Path

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.nccl_library import NcclLibrary
from busbw.core.result import EngineLibrary
from busbw.engines.registry import BY_NAME, ENGINES, choose_for
from busbw.ui.number_formats import nccl_version_text

SONAME = "libnccl.so.2"  # the name under which nccl4py and PyTorch ask the dynamic loader for it
HASH_DIGITS = 16  # of the SHA-256 in a result
NEEDS_GPU = "run it on a host where nvidia-smi lists a GPU"


def choose(
    release: str, wheels: Path | None, engine: str, *, elsewhere: bool
) -> NcclLibrary | None:
    """The library for --nccl and --wheels; None if neither is given.

    Ranks may be `elsewhere`, as in choose_for. UsageError for an engine without NCCL, NoMeasurement
    without GPUs, and as `find` raises.
    """
    if not release:
        if wheels:
            raise UsageError(f"--wheels {wheels} without --nccl", "add --nccl 2.32.3")
        return None
    row, note = choose_for(engine, elsewhere=elsewhere)
    if row and note and not row.nccl:
        raise NoMeasurement(f"--nccl {release}: {BY_NAME['nccl'].availability()}", NEEDS_GPU)
    if row and not row.nccl:
        able = " or ".join(f"--engine {row.name}" for row in ENGINES if row.nccl)
        raise UsageError(
            f"--nccl {release}: engine {row.name} moves no data through NCCL",
            f"add {able}, or leave out --nccl",
            options=["engine"],
        )
    # wheels, xz and locks: most runs need none of them
    from busbw.host.nccl_releases.find import find

    return find(release, wheels)


def load(library: NcclLibrary | None) -> None:
    """Load the library, if there is one, so that whoever asks for NCCL later gets this one.

    NoMeasurement if it is not on this host, or another is loaded already.
    """
    if library is None:
        return
    version = nccl_version_text(library.version)
    try:
        loaded = ctypes.CDLL(library.path)
    except OSError as error:
        raise NoMeasurement(
            f"NCCL {version} cannot be loaded on {platform.node()}: {error}",
            "all hosts need the file at the same path: set XDG_CACHE_HOME to a folder that they"
            " share, or put --wheels there",
        ) from error
    try:
        asked = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD)
    except OSError:
        asked = None
    if asked is None or asked._handle != loaded._handle:
        raise NoMeasurement(
            f"NCCL {version} is loaded from {library.path}, but a program that asks for {SONAME}"
            f" {'gets another file' if asked else 'does not get it'}",
            "unset LD_PRELOAD, and see the name in the library: readelf -d FILE | grep SONAME",
        )


def confirm(library: NcclLibrary | None, used: EngineLibrary) -> None:
    """Note the hash in the engine's `used` library, after checking that it is the chosen one.

    UsageError if the engine does not use NCCL, NoMeasurement for another version.
    """
    if library is None:
        return
    version = nccl_version_text(library.version)
    if not used.nccl:
        raise UsageError(
            f"--nccl {version}: PyTorch found no GPU and does not use NCCL", "run without --nccl"
        )
    if used.nccl != library.version:
        raise NoMeasurement(
            f"--nccl {version}: {nccl_version_text(used.nccl)} ran on {platform.node()}",
            "unset LD_PRELOAD, which may name another NCCL",
        )
    used.versions["libnccl"] = f"sha256 {library.sha256[:HASH_DIGITS]}"
