"""Mounted file systems from /proc/self/mountinfo, and their space and inodes.

A file system whose server does not answer is given up after LIMIT_S.
"""

import json
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from busbw.host.os_queries import free_space, space
from busbw.host.source import Reading, Source, once

MOUNTINFO = "/proc/self/mountinfo"
# File systems without a block device that hold data: of a network or cluster, or with their own
# volumes.
NETWORK_FILE_SYSTEMS = frozenset(
    (
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "virtiofs",
        "wekafs",
        "zfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.juicefs",
        "fuse.s3fs",
        "fuse.gcsfuse",
    )
)
_OCTAL = re.compile(r"\\([0-7]{3})")
CALL = "file systems"
LIMIT_S = 5.0
NO_ANSWER = f"no answer in {LIMIT_S:g} s"
PATHS = ("/", "/tmp", "/var", "/dev/shm")


@dataclass(frozen=True, slots=True)
class MountedFileSystem:
    """One mounted file system."""

    path: str
    kind: str
    source: str
    device: str  # major:minor
    root: str  # the part of it that is mounted; '/' if it is all of it
    writable: bool  # both this mount and the file system are
    # the kernel made it read-only after an error, while its mounts stay as they were
    remounted: bool = False

    @property
    def on_disk(self) -> bool:
        """Whether it is on a local block device, and not an image in a file."""
        return self.source.startswith("/dev/") and not self.source.startswith("/dev/loop")

    @property
    def keeps_data(self) -> bool:
        """Whether it is a local or shared file system.

        Others are the kernel's, in memory, or a container's.
        """
        return self.on_disk or self.kind in NETWORK_FILE_SYSTEMS


def read_mounts(source: Source) -> dict[str, MountedFileSystem] | str:
    """What is mounted, by path: of several at one path the last, which hides the others.

    A text says why the mounts are unknown.
    """
    reading = source.read(MOUNTINFO)
    if not reading.text:
        return reading.reason or f"{MOUNTINFO}: it is empty"
    parsed = map(_mounted, reading.text.splitlines())
    return {mounted.path: mounted for mounted in parsed if mounted}


def read_space(source: Source, path: str) -> Reading:
    """{"total", "free"} of a file system in bytes, as JSON."""
    return source.call(f"space {path}", lambda: space(path))


def total_bytes(reading: Reading) -> int | None:
    """The size in a reading of `read_space`; None if it has none."""
    try:
        size = json.loads(reading.text or "null")
    except ValueError:
        return None
    total = size.get("total") if isinstance(size, dict) else None
    return total if isinstance(total, int) else None


def _mounted(text: str) -> MountedFileSystem | None:
    """The mount that a line describes; None for a line of another form.

    A line is like `36 35 98:0 /root /path rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue`.
    """
    before, _, after = text.partition(" - ")
    mount, file_system = before.split(" "), after.split(" ")
    if len(mount) < 6 or len(file_system) < 3:
        return None
    device, root, path, options = mount[2:6]
    kind, source, super_options = file_system[:3]
    mount_writable, writable = ("rw" in text.split(",") for text in (options, super_options))
    return MountedFileSystem(
        path=_unescape(path),
        kind=kind,
        source=_unescape(source),
        device=device,
        root=_unescape(root),
        writable=mount_writable and writable,
        remounted=mount_writable and not writable,
    )


def _unescape(text: str) -> str:
    """The text without the kernel's escapes of spaces, such as \\040."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


@once
def read_file_systems(source: Source) -> dict[str, dict[str, int | str]] | None:
    """What `file_systems` says by path, live or recorded; None if a snapshot has none."""
    # Path.home raises without a home.
    home = os.path.expanduser("~")  # noqa: PTH111
    text = source.call(CALL, lambda: file_systems((*PATHS, home))).text
    return None if text is None else dict(json.loads(text))


def file_systems(paths: tuple[str, ...]) -> str:
    """JSON by path: the values of `free_space` and {"device"}, or {"error"}.

    All paths are read at once, each in a thread: statvfs(2) of a dead mount blocks until its server
    is back. Paths that do not exist are left out.
    """
    paths = tuple(dict.fromkeys(paths))
    results: dict[str, dict[str, int | str]] = {}
    threads = [
        threading.Thread(target=_read_space, args=(path, results), daemon=True) for path in paths
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    in_time = dict(results)  # threads that are late may still write
    spaces = {path: in_time.get(path, {"error": NO_ANSWER}) for path in paths}
    return json.dumps({path: values for path, values in spaces.items() if values})


def _read_space(path: str, results: dict[str, dict[str, int | str]]) -> None:
    """Put the values of a path into `results`, {} if it does not exist."""
    try:
        results[path] = {**free_space(path), "device": Path(path).stat().st_dev}
    except FileNotFoundError:
        results[path] = {}
    except OSError as error:
        results[path] = {"error": str(error.strerror).lower()}
