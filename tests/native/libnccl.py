"""Runs the part of a communicator's life that concerns plugins with a libnccl, on a machine without
a GPU.

    python libnccl.py LIBNCCL COMMUNICATORS

ncclCommInitRank asks CUDA for a device before it looks at plugins, so this calls what it would call
next: functions inside libnccl, found through its symbol table, with a communicator of zeros. Each
call prints a line "NAME RESULT changed|same": its ncclResult_t, and whether it wrote to the
communicator. libnccl's log goes where NCCL_DEBUG_FILE says. For NCCL 2.27 and newer.
"""

import ctypes
import subprocess
import sys
from pathlib import Path

NO_SYMBOLS = "it has no symbol table"
# In the order of init and destroy.
LIFE = (
    "ncclNetInit", "ncclTunerPluginLoad", "ncclProfilerPluginInit",
    "ncclProfilerPluginFinalize", "ncclTunerPluginUnload", "ncclNetFinalize",
)  # fmt: skip
COMMUNICATOR_BYTES = 16 << 20  # struct ncclComm has between 1 and 2 MiB in 2.27 to 2.32


class UniqueId(ctypes.Structure):
    """128 bytes."""

    _fields_ = [("internal", ctypes.c_char * 128)]


def addresses(path: Path, library: ctypes.CDLL) -> dict[str, int]:
    """Addresses of all functions, as g++ spells them; ends the program without a symbol table."""
    listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    found = {
        words[2]: int(words[0], 16)
        for words in map(str.split, listed.splitlines())
        if len(words) == 3 and words[1] in "tT"
    }
    if not found:
        sys.exit(NO_SYMBOLS)
    known = "pncclGetVersion"
    base = (ctypes.cast(library[known], ctypes.c_void_p).value or 0) - found[known]
    return {name: base + offset for name, offset in found.items()}


def inside(path: Path, library: ctypes.CDLL) -> dict[str, int]:
    """Addresses of the functions of LIFE: NAME(ncclComm*)."""
    found = addresses(path, library)
    return {name: found[f"_Z{len(name)}{name}P8ncclComm"] for name in LIFE}


def live(functions: dict[str, int]) -> None:
    """One communicator, from its first plugin to the end."""
    communicator = ctypes.create_string_buffer(COMMUNICATOR_BYTES)
    before = communicator.raw
    for name, address in functions.items():
        result = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)(
            ctypes.addressof(communicator)
        )
        after = communicator.raw
        print(name, result, "same" if after == before else "changed", flush=True)
        before = after


def main() -> None:
    """See the docstring of the module."""
    path = Path(sys.argv[1])
    library = ctypes.CDLL(str(path))
    # The start of every job: reads the environment and opens the log.
    if result := library.ncclGetUniqueId(ctypes.byref(UniqueId())):
        sys.exit(f"ncclGetUniqueId returned {result}")
    functions = inside(path, library)
    for _ in range(int(sys.argv[2])):
        live(functions)


if __name__ == "__main__":
    main()
