"""Which libnccl the tests use: that of the installed nvidia-nccl package, and each path in
BUSBW_TEST_LIBNCCL (separated by colons).
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

OTHERS = "BUSBW_TEST_LIBNCCL"
_ASK = (
    "import ctypes, sys; n = ctypes.c_int();"
    " ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(n)); print(n.value)"
)


def installed() -> list[Path]:
    """The libnccl of the nvidia-nccl package, if there is one."""
    spec = find_spec("nvidia.nccl") if find_spec("nvidia") else None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return [path for folder in folders for path in Path(folder).glob("lib/libnccl.so.2")]


def libraries() -> list[object]:
    """A parameter for each libnccl, or one with the reason why there is none."""
    origins = {
        "installed": (installed(), "no nvidia-nccl package with a libnccl.so.2"),
        "named": (
            [Path(word) for word in os.environ.get(OTHERS, "").split(":") if word],
            f"{OTHERS} names no further libnccl.so.2",
        ),
    }
    return [
        pytest.param(
            path, id=f"{origin}{number}", marks=() if path else pytest.mark.skip(reason=reason)
        )
        for origin, (paths, reason) in origins.items()
        for number, path in enumerate(paths or [None])
    ]


def version_of(libnccl: Path, oldest: int) -> int:
    """As NCCL counts: 2.28.9 is 22809; skips before `oldest`.

    Asked in a separate process, since a process should hold one libnccl.
    """
    done = subprocess.run(
        [sys.executable, "-c", _ASK, libnccl], capture_output=True, text=True, check=True
    )
    version = int(done.stdout)
    if version < oldest:
        pytest.skip(f"NCCL {version}: loads plugins differently from {oldest} and newer")
    return version
