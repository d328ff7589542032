"""Saves tensors in one file, which is either complete or refused.

The former file stays until the new one is complete.
"""

import contextlib
import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from busbw.core.errors import BusbwError, UsageError

FORMAT = "busbw.checkpoint/1"


def save(state: Mapping[str, Any], path: str | os.PathLike[str], kind: str) -> None:
    """Write `state` (tensors, numbers, text, lists, dicts) as a checkpoint of this kind.

    The file at `path` is replaced once the new one is on disk.

    Raises:
        BusbwError: the disk is full or cannot be written. The file that was at `path` is unchanged.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            torch.save({"format": FORMAT, "kind": kind, "state": dict(state)}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
        _sync(target.parent)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        written = partial.stat().st_size if partial.exists() else 0
        with contextlib.suppress(OSError):
            partial.unlink()
        reason = str(error).splitlines()[0]
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        unchanged = "; the checkpoint that was there is unchanged" if target.exists() else ""
        raise BusbwError(
            f"the checkpoint {target} was not written, {written} bytes in: {reason}{unchanged}",
            f"df -h {target.parent} shows the free space",
        ) from error


def load(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """The state of a checkpoint of this kind.

    Its tensors are read from the file when they are used. Executes nothing that it contains.

    Raises:
        UsageError: there is no such file, it is cut off or damaged, or holds something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load does not compare checksums
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} is wrong")
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:
        raise UsageError(
            f"there is no checkpoint {path}", "name a file that was saved before"
        ) from None
    except (
        OSError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"the checkpoint {path} is cut off or damaged: {reason}", "load the one before it"
        ) from error
    header: tuple[object, object] = (None, None)
    if isinstance(content, dict):
        header = (content.get("format"), content.get("kind"))
    if header != (FORMAT, kind):
        raise UsageError(
            f"{path} is not a checkpoint of {kind}: its format is {header[0]},"
            f" its kind {header[1]}",
            "name a file of this kind",
        )
    state: dict[str, Any] = content["state"]
    return state


def _sync(folder: Path) -> None:
    """Make the new name survive a crash of the host."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
