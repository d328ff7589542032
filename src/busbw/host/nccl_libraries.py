"""Libraries of NCCL on this machine, and of its plugins: found as files, none is loaded."""

import json
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from busbw.host.source import Unavailable

NAME = "libnccl.so.2"
PACKAGE, PATH = "Python package", "LD_LIBRARY_PATH"
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
)
# In all releases the text with the version stands before the GPU code.
SEARCHED_BYTES = 64 << 20
_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)\+")


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """One libnccl.

    `version` is '' if the file does not state it. `by` is what leads to the file: a Python package,
    a variable or a folder.
    """

    path: str
    version: str
    by: str


def live() -> str:
    """The libraries as JSON, for a Machine's call."""
    return json.dumps(
        [
            {"path": library.path, "version": library.version, "by": library.by}
            for library in _distinct_libraries()
        ]
    )


def parse(text: str) -> tuple[LibraryFile, ...]:
    """The libraries in the JSON of `live`."""
    return tuple(LibraryFile(**fields) for fields in json.loads(text))


def located(value: str, kind: str) -> str:
    """The file that NCCL would load for a plugin's variable; '' if there is none.

    `value` is that of NCCL_NET_PLUGIN and the like, and `kind` is net, tuner or profiler. NCCL
    tries `value` as a library, then libnccl-KIND-VALUE.so.
    For a name without a slash the dynamic loader searches LD_LIBRARY_PATH and the system's folders;
    here it is searched in LD_LIBRARY_PATH and FOLDERS. Unavailable if none of them is readable.
    """
    if "/" in value:
        return value if Path(value).is_file() else ""
    folders = [Path(folder) for folder in (*_path_folders(), *FOLDERS) if Path(folder).is_dir()]
    if not folders:
        raise Unavailable("none of the library folders can be read")
    files = (folder / name for name in (value, f"libnccl-{kind}-{value}.so") for folder in folders)
    return next((str(path) for path in files if path.is_file()), "")


def _path_folders() -> list[str]:
    return [folder for folder in os.environ.get(PATH, "").split(":") if folder]


def _distinct_libraries() -> Iterator[LibraryFile]:
    files = set()
    for path, by in _candidates():
        if not path.is_file():
            continue
        file = path.resolve()
        if file not in files:
            files.add(file)
            yield LibraryFile(str(path), _version(file), by)


def _candidates() -> Iterator[tuple[Path, str]]:
    try:
        spec = find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        spec = None
    package_folders = spec.submodule_search_locations if spec else None
    for folder in package_folders or ():
        yield Path(folder, "lib", NAME), PACKAGE
    for folder in _path_folders():
        yield Path(folder, NAME), PATH
    for folder in FOLDERS:
        yield Path(folder, NAME), folder


def _version(path: Path) -> str:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = _VERSION.search(data, 0, SEARCHED_BYTES)
            return match.group(1).decode() if match else ""
    except (OSError, ValueError):  # an empty file cannot be mapped
        return ""
