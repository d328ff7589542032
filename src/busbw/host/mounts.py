"""Mounted file systems, from /proc/self/mountinfo.

Space and inodes of file systems.

A file system whose server does not answer is given up after a while.
"""

import json
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from busbw.host.os_queries import room, space
from busbw.host.source import Reading, Source, once

MOUNTINFO = "/proc/self/mountinfo"
# File systems without a block device that hold data: of a network or cluster, or with their own
# volumes.
SHARED = frozenset(
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


@dataclass(frozen=True, slots=True)
class Mounted:
    """One mounted file system. `root` is the part of it that is mounted, '/' if it is all of it."""

    path: str
    kind: str
    source: str
    device: str  # major:minor
    root: str
    writable: bool

    @property
    def on_disk(self) -> bool:
        """Whether it is on a local block device, and not an image in a file."""
        return self.source.startswith("/dev/") and not self.source.startswith("/dev/loop")

    @property
    def keeps_data(self) -> bool:
        """Whether it is a local or shared file system, not one of the kernel, of memory or of a
        container.
        """
        return self.on_disk or self.kind in SHARED


def read_mounts(source: Source) -> dict[str, Mounted] | str:
    """What is mounted, by path: of several at one path the last, which hides the others.

    A text says why it cannot be read.
    """
    reading = source.read(MOUNTINFO)
    if not reading.text:
        return reading.reason or f"{MOUNTINFO}: it is empty"
    found = (_mounted(text) for text in reading.text.splitlines())
    return {one.path: one for one in found if one}


def read_space(source: Source, path: str) -> Reading:
    """{"total", "free"} of a file system in bytes, as JSON."""
    return source.call(f"space {path}", lambda: space(path))


def total_bytes(reading: Reading) -> int | None:
    """The size in what `read_space` gave; None if it is not in there."""
    try:
        size = json.loads(reading.text or "null")
    except ValueError:
        return None
    total = size.get("total") if isinstance(size, dict) else None
    return total if isinstance(total, int) else None


def _mounted(text: str) -> Mounted | None:
    """One line: `36 35 98:0 /root /path rw,noatime master:1 - ext4 /dev/sda1
    rw,errors=continue`; None for another form.
    """
    before, _, after = text.partition(" - ")
    own, other = before.split(" "), after.split(" ")
    if len(own) < 6 or len(other) < 3:
        return None
    writable = "rw" in own[5].split(",") and "rw" in other[2].split(",")
    return Mounted(_plain(own[4]), other[0], _plain(other[1]), own[2], _plain(own[3]), writable)


def _plain(text: str) -> str:
    """Without the kernel's escapes of spaces, such as \\040."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


CALL = "file systems"
LIMIT_S = 5.0
SILENT = f"no answer in {LIMIT_S:g} s"
PATHS = ("/", "/tmp", "/var", "/dev/shm")


@once
def read_file_systems(source: Source) -> dict[str, dict[str, int | str]] | None:
    """By path: what `file_systems` says, live or recorded; None if a snapshot has none."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises without a home
    text = source.call(CALL, lambda: file_systems((*PATHS, home))).text
    return None if text is None else dict(json.loads(text))


def file_systems(paths: tuple[str, ...]) -> str:
    """JSON by path: what `room` says, and {"device"}; or {"error"}.

    All paths at once, each in a thread: statvfs(2) of a dead mount blocks until its server is back.
    Paths that do not exist are left out.
    """
    found: dict[str, dict[str, int | str]] = {}
    threads = [
        threading.Thread(target=_look, args=(path, found), daemon=True)
        for path in dict.fromkeys(paths)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    said = dict(found)  # threads that are late may still write
    return json.dumps(
        {
            path: said.get(path, {"error": SILENT})
            for path in dict.fromkeys(paths)
            if said.get(path) != {}
        }
    )


def _look(path: str, found: dict[str, dict[str, int | str]]) -> None:
    try:
        found[path] = {**room(path), "device": Path(path).stat().st_dev}
    except FileNotFoundError:
        found[path] = {}
    except OSError as error:
        found[path] = {"error": str(error.strerror).lower()}
