"""Where a file that a user names is written: behind its symbolic links, but not behind those that
another user has left in a folder that all can write to, such as /tmp.
"""

import errno
import os
import stat
from pathlib import Path

MAX_LINKS = 40  # as in the kernel


def target_of(file: Path | str) -> Path:
    """The file that a write to `file` replaces: its links are followed, as the kernel follows them
    with fs.protected_symlinks, which containers and root may lack.

    OSError for a link in a sticky folder that all users can write to, unless it is this user's or
    that of the folder's owner.
    """
    path = Path(os.path.normpath(Path(file).absolute()))
    for _ in range(MAX_LINKS):
        link = next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)
        if link is None:
            return path
        _refuse_strangers(link)
        rest = path.relative_to(link)
        path = Path(os.path.normpath(link.parent / link.readlink() / rest))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _refuse_strangers(link: Path) -> None:
    folder, owner = link.parent.stat(), link.lstat().st_uid
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if shared and owner not in (os.geteuid(), folder.st_uid):
        raise OSError(errno.EACCES, f"{link} is a symbolic link of another user, number {owner}")
