"""Part of the single file: unpacks its packages, once for each user, and starts busbw from there.

Extension modules cannot be imported from a zip. The packages go to $XDG_CACHE_HOME/busbw/file, in a
folder whose name has the version and the digest of what is in it. It appears there by a rename, so
that any number of processes, also on hosts that share it, may start at the same time. Only the
standard library is imported here, and little of that once the packages are unpacked.
"""

import os
import runpy
import stat
import sys
from pathlib import Path
from typing import NoReturn

import busbw_built  # written by the build

PACKAGES = "packages.zip"  # in the single file
COMMON_FOLDER = "common"  # in PACKAGES: what all Pythons share; other folders have a suffix as name
NO_MEASUREMENT, BUG = 3, 4  # exit codes of busbw
UNMAPPED_OWNER = 65534  # in a user namespace: of files whose owner has no id there
ALL_USERS = ["0", "0", "4294967295"]  # /proc/self/uid_map outside of user namespaces


class CannotUnpack(Exception):
    """There is no folder for the packages. Its text is the message with its hint."""


def run(file: str) -> None:
    """Run busbw with the arguments of this process; `-m MODULE` runs a module of busbw.

    If it fails, the unpacked packages are compared with those in `file`.
    """
    prepare(file)
    try:
        _run_busbw()
    except SystemExit as end:
        if end.code == BUG:
            _mend(file)
        raise
    except Exception:
        _mend(file)
        raise


def prepare(file: str) -> None:
    """Let this process import busbw from the packages of the single file at an absolute path.

    Exits with a message if they cannot be unpacked.
    """
    from _imp import extension_suffixes

    try:
        folder = unpacked(file)
    except CannotUnpack as problem:
        _fail(str(problem))
    sys.path[:0] = [str(folder / COMMON_FOLDER), str(folder / extension_suffixes()[0])]
    from busbw.core import program

    program.set_single_file(file)


def _fail(problem: str) -> NoReturn:
    sys.stderr.write(f"error: {problem}\n")
    sys.exit(NO_MEASUREMENT)


def _run_busbw() -> None:
    module = "busbw"
    if sys.argv[1:2] == ["-m"] and sys.argv[2:] and sys.argv[2].split(".")[0] == "busbw":
        module = sys.argv[2]
        del sys.argv[1:3]
    # The name in sys.argv stays: a link called all_reduce_perf is that command.
    runpy.run_module(module, run_name="__main__")


def unpacked(file: str) -> Path:
    """The folder with the packages of `file`, which are unpacked unless they are there.

    CannotUnpack if there is no folder that only this user can write to, or no room.
    """
    parent = _own_folder()
    folder = parent / f"{busbw_built.VERSION}-{busbw_built.DIGEST[:16]}"
    if not folder.is_dir():
        try:
            _unpack(file, folder)
        except OSError as error:
            raise CannotUnpack(
                f"{parent}: {error.strerror or error}: no place for the packages of {file}\n\n"
                f"hint: make room, or name another folder: {_other_cache()}"
            ) from error
    return folder


def _own_folder() -> Path:
    """The folder of unpacked files, which is made if needed, without symbolic links in its path."""
    path = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not path.is_absolute():
        try:
            path = Path.home() / ".cache"
        except RuntimeError as error:
            raise CannotUnpack(
                f"this user has no home directory\n\nhint: {_other_cache()}"
            ) from error
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = path.resolve(strict=True)
        _check_path(path)
        for name in ("busbw", "file"):
            path = path / name
            path.mkdir(mode=0o700, exist_ok=True)
            _check_own(path)
    except OSError as error:
        raise CannotUnpack(
            f"{path}: {error.strerror}\n\nhint: name a folder to write to: {_other_cache()}"
        ) from error
    return path


def _check_path(path: Path) -> None:
    """CannotUnpack if another user could put another folder in the place of a folder in `path`.

    Nobody but its owner can do that below a folder that others cannot enter.
    """
    for folder in (*reversed(path.parents), path):
        status = folder.stat()
        if not _is_trusted(status.st_uid, is_parent=folder != path):
            raise _refused(folder, f"it belongs to user {status.st_uid}")
        if not status.st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            return
        if _others_can_rename(status):
            raise _refused(
                folder, f"others can rename what is in it (mode {stat.S_IMODE(status.st_mode):o})"
            )


def _is_trusted(owner: int, *, is_parent: bool) -> bool:
    """Whether a folder's owner is this user or root; in a user namespace, root of the host."""
    if owner in (0, os.geteuid()):
        return True
    return is_parent and owner == UNMAPPED_OWNER and _in_user_namespace()


def _in_user_namespace() -> bool:
    try:
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split() != ALL_USERS
    except OSError:
        return False


def _others_can_rename(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_ISVTX:
        return False
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_own_group(status.st_gid)


def _is_own_group(group: int) -> bool:
    """Whether a group is root's, or a private one: named as this user, without other members."""
    import grp
    import pwd

    if group == 0:
        return True
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    is_primary = (group, entry.gr_name) == (user.pw_gid, user.pw_name)
    return is_primary and set(entry.gr_mem) <= {user.pw_name}


def _check_own(path: Path) -> None:
    """CannotUnpack if another user could put files into a folder."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _refused(path, "it is not a directory")
    if status.st_uid != os.geteuid():
        raise _refused(path, f"it belongs to user {status.st_uid}, this is user {os.geteuid()}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _refused(path, f"others can write to it (mode {stat.S_IMODE(status.st_mode):o})")


def _refused(path: Path, reason: str) -> CannotUnpack:
    return CannotUnpack(f"{path}: {reason}\n\nhint: name a folder of your own: {_other_cache()}")


def _other_cache() -> str:
    """A setting that makes this user a cache, also where another user has made its usual folder."""
    folder = Path(f"/var/tmp/busbw-{os.geteuid()}")
    try:
        is_free = folder.lstat().st_uid == os.geteuid()
    except OSError:
        is_free = True
    suffix = "" if is_free else f"-{os.urandom(4).hex()}"
    return f"XDG_CACHE_HOME={folder}{suffix}"


def _unpack(file: str, folder: Path) -> None:
    """Unpack into a temporary folder, and rename it; another process may be faster."""
    import shutil
    import tempfile
    from zipfile import ZipFile

    temporary = tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent)
    try:
        with ZipFile(file) as outer, outer.open(PACKAGES) as inner, ZipFile(inner) as packages:
            packages.extractall(temporary)
        try:
            Path(temporary).rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _mend(file: str) -> None:
    """If an unpacked file is not as it was, unpack all of them again.

    Exits then, because this process may have imported a part of them.
    """
    import shutil
    import tempfile

    try:
        folder = unpacked(file)
        damaged = _damaged(file, folder)
        if not damaged:
            return
        aside = Path(tempfile.mkdtemp(prefix="damaged.", dir=folder.parent))
        try:
            folder.rename(aside / "packages")
            unpacked(file)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except (CannotUnpack, OSError) as problem:
        _fail(str(problem))
    _fail(
        f"{folder}: {damaged} was damaged; the packages have been unpacked again\n\n"
        "hint: run the same command once more"
    )


def _damaged(file: str, folder: Path) -> str:
    """The first file that differs from the one in the packages; '' if there is none."""
    from zipfile import ZipFile
    from zlib import crc32

    with ZipFile(file) as outer, outer.open(PACKAGES) as inner, ZipFile(inner) as packages:
        for member in packages.infolist():
            try:
                data = (folder / member.filename).read_bytes()
            except OSError:
                return member.filename
            if crc32(data) != member.CRC:
                return member.filename
    return ""
