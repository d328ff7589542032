"""What a library is: asked in a process of its own, so that nothing of it stays in this one."""

import platform
import signal
import subprocess
import sys
from pathlib import Path

from busbw.core.errors import UsageError
from busbw.ui.number_formats import nccl_version_text

LIMIT_S = 60.0  # 340 MB from a network file system
# What every measurement calls, the newest last: NCCL has it since 2.14.
NEEDED = ("ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRankConfig")
OLDEST = "2.14"
ELF, ELF_BYTES, MACHINE = b"\x7fELF", 20, slice(18, 20)  # where e_machine is in the header
_PROBE = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
version = ctypes.c_int(0)
if hasattr(library, "ncclGetVersion"):
    library.ncclGetVersion(ctypes.byref(version))
print(version.value, *(name for name in sys.argv[2:] if not hasattr(library, name)))
"""


def version(path: Path) -> int:
    """The version that ncclGetVersion of this library gives, such as 23203 for 2.32.3.

    UsageError if it does not load, is no NCCL, or is too old for busbw.
    """
    _refuse_foreign(path)
    number, *absent = _probed(path).split()
    if not int(number):
        raise UsageError(
            f"{path}: the library is no NCCL: it has no {absent[0] if absent else 'version'}",
            "name libnccl.so.2",
        )
    if absent:
        raise UsageError(
            f"{path}: NCCL {nccl_version_text(int(number))} has no {absent[-1]}",
            f"busbw needs NCCL {OLDEST} or newer",
        )
    return int(number)


def _refuse_foreign(path: Path) -> None:
    """UsageError for no library or another processor's, for which the loader has no clear error."""
    try:
        with path.open("rb") as file, Path("/proc/self/exe").open("rb") as own:
            header, own_header = file.read(ELF_BYTES), own.read(ELF_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", f"ls -l {path}") from error
    if header[: len(ELF)] != ELF:
        raise UsageError(f"{path}: the file is no shared library", f"file {path}")
    if header[MACHINE] != own_header[MACHINE]:
        raise UsageError(
            f"{path}: the library is not for {platform.machine()}, the processor of this machine",
            f"file {path}",
        )


def _probed(path: Path) -> str:
    """What the child prints: the version, and the names of missing functions."""
    command = [sys.executable, "-c", _PROBE, str(path), *NEEDED]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{path}: it does not load within {LIMIT_S:g} s", f"ldd {path}") from error
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise UsageError(
            f"{path}: loading it kills the process with {name}",
            "the file may be cut off: get it again",
        )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        reason = lines[-1].removeprefix("OSError: ").removeprefix(f"{path}: ")
        raise UsageError(f"{path}: it cannot be loaded: {reason}", f"file {path}; ldd {path}")
    return done.stdout.decode().strip().splitlines()[-1]
