"""The library of a release of NCCL: from a folder of wheels, from the cache, or with pip."""

import contextlib
import fcntl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from busbw.core.cache_folder import cache_folder
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.nccl_library import NcclLibrary
from busbw.host.nccl_releases import names, pip, probe
from busbw.host.nccl_releases.unpack import file_hash, unpack, unpacked_hash
from busbw.ui.number_formats import nccl_version_number, nccl_version_text

KEY_DIGITS = 16  # of a file's hash, which names the folder of what was unpacked from it
LOCK_LIMIT_S = pip.LIMIT_S
LOCK_POLL_S = 0.2


def find(release: str, wheels: Path | None) -> NcclLibrary:
    """The library of a release such as 2.32.3, or that in a file if `release` is a path.

    With a folder of `wheels` only that is searched; otherwise what is not in the cache comes from
    pip. UsageError for an unknown release and for files that hold no NCCL for this machine,
    NoMeasurement if pip or the cache fails.
    """
    if "/" in release:
        return _checked(_of_file(Path(release)))
    if not names.is_release(release):
        raise UsageError(
            f"--nccl {release}: a release has three numbers",
            "write --nccl 2.32.3, or a path: --nccl ./libnccl.so.2",
        )
    path = _in_folder(release, wheels) if wheels else _downloaded(release)
    library = _checked(path)
    if library.version != nccl_version_number(release):
        raise UsageError(
            f"--nccl {release}: {path} is NCCL {nccl_version_text(library.version)}",
            "give the file in --wheels the name of its release",
        )
    return library


def _checked(path: Path) -> NcclLibrary:
    return NcclLibrary(str(path.absolute()), probe.version(path), file_hash(path))


def _of_file(path: Path) -> Path:
    """The library in a file that the user named."""
    if not path.is_file():
        raise UsageError(f"--nccl {path}: there is no such file", "name libnccl.so.2, or a wheel")
    if path.suffix not in (".whl", ".xz"):
        return path
    return _unpacked(path, path.name.removesuffix(".xz"))


def _in_folder(release: str, folder: Path) -> Path:
    files = names.in_folder(folder)
    file = names.choose(files, release, pip.cuda_of_wheels())
    if file is None:
        raise names.missing(folder, files, release)
    return file.path if file.is_library else _unpacked(file.path, f"libnccl-{release}.so")


def _unpacked(source: Path, name: str) -> Path:
    """What the cache has of this very file, unpacked now if it has nothing."""
    try:
        key = file_hash(source)[:KEY_DIGITS]
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}", f"ls -l {source}") from error
    target = _cache() / key / name
    if not unpacked_hash(target):
        with _locked():
            if not unpacked_hash(target):  # another process may have done it meanwhile
                unpack(source, target)
    return target


def _downloaded(release: str) -> Path:
    cuda = pip.cuda_of_wheels()
    target = _cache() / cuda / f"libnccl-{release}.so"
    if not unpacked_hash(target):
        with _locked():
            if not unpacked_hash(target):
                with tempfile.TemporaryDirectory(dir=_cache()) as folder:
                    unpack(pip.download(release, cuda, Path(folder)), target)
    return target


def _cache() -> Path:
    folder = cache_folder("nccl")
    if folder is None:
        raise NoMeasurement(
            "there is no home folder to unpack NCCL in", "set XDG_CACHE_HOME to a folder"
        )
    return folder


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """While one process of this user unpacks, others wait."""
    folder = _cache()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise NoMeasurement(
            f"{folder}: {error.strerror}", "set XDG_CACHE_HOME to a folder that you can write"
        ) from error
    with lock:
        end = time.monotonic() + LOCK_LIMIT_S
        while not _took(lock.fileno()):
            if time.monotonic() > end:
                raise NoMeasurement(
                    f"{folder}/lock: another busbw holds it for over {LOCK_LIMIT_S:g} s",
                    f"fuser {folder}/lock, to see which",
                )
            time.sleep(LOCK_POLL_S)
        yield


def _took(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
