"""Takes libnccl out of a wheel, or out of a file that xz packed. Nothing else is written."""

import base64
import csv
import hashlib
import lzma
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.sizes import format_size

MEMBER = "nvidia/nccl/lib/libnccl.so.2"
MAX_BYTES = 2 << 30  # of a library: that of 2.32.3 has 344 MB
MAX_RECORD_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # a compression that this Python does not have
    RuntimeError,  # an encrypted member
)


def unpack(source: Path, target: Path) -> None:
    """Write the library in `source` to `target`, and its hash beside it.

    `target` appears when it is complete. UsageError for a file that is broken, too large or holds
    no library, NoMeasurement if `target` cannot be written.
    """
    try:
        with _library(source) as (library, expected):
            sha256 = _write(library, target, source)
    except BROKEN as error:
        raise UsageError(f"{source}: it cannot be unpacked: {error}", _again(source)) from error
    if expected and sha256 != expected:
        target.unlink()
        raise UsageError(
            f"{source}: {MEMBER} is not the one in the wheel's RECORD (sha256 {sha256[:16]}...,"
            f" recorded {expected[:16]}...)",
            _again(source),
        )
    _hash_file(target).write_text(f"{sha256}  {target.name}\n")


def unpacked_hash(target: Path) -> str:
    """The hash of a library that `unpack` wrote; '' if there is none, or it has changed since."""
    try:
        recorded = _hash_file(target).read_text().partition(" ")[0]
        return recorded if recorded == file_hash(target) else ""
    except OSError:
        return ""


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_file(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")  # as `sha256sum -c` reads it


def _again(source: Path) -> str:
    return f"remove {source}, and get it again"


@contextmanager
def _library(source: Path) -> Iterator[tuple[IO[bytes], str]]:
    """The library as a stream, and its hash in the wheel's RECORD, '' if that has none."""
    if source.suffix != ".whl":
        with lzma.open(source) as stream:
            yield stream, ""
        return
    with zipfile.ZipFile(source) as wheel:
        if wheel.namelist().count(MEMBER) != 1:
            raise UsageError(f"{source}: no wheel of NCCL: it has no {MEMBER}", _again(source))
        expected = _recorded_hash(wheel)
        with wheel.open(MEMBER) as stream:
            yield stream, expected


def _recorded_hash(wheel: zipfile.ZipFile) -> str:
    """The SHA-256 that RECORD states for the library."""
    names = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")]
    if len(names) != 1:
        return ""
    with wheel.open(names[0]) as stream:
        text = stream.read(MAX_RECORD_BYTES).decode("utf-8", "replace")
    for row in csv.reader(text.splitlines()):
        if len(row) > 1 and row[0] == MEMBER and row[1].startswith("sha256="):
            digest = row[1].removeprefix("sha256=")
            with suppress(ValueError):
                return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
    return ""


def _write(library: IO[bytes], target: Path, source: Path) -> str:
    """Copy the stream to `target`; returns its hash."""
    digest, size = hashlib.sha256(), 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            try:
                while chunk := library.read(CHUNK_BYTES):
                    size += len(chunk)
                    if size > MAX_BYTES:
                        raise UsageError(
                            f"{source}: the library has more than {format_size(MAX_BYTES)}",
                            _again(source),
                        )
                    digest.update(chunk)
                    file.write(chunk)
                file.close()
                Path(file.name).replace(target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise NoMeasurement(
            f"{target}: {error.strerror or error}",
            "free some space there, or set XDG_CACHE_HOME to another folder",
        ) from error
    return digest.hexdigest()
