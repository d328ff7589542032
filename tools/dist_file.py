"""The single file of a release: the wheel of busbw, with its dependencies for each Python."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import versions

from busbw.launch.single_file import build

MACHINE = "x86_64"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
SUFFIX = re.compile(r"\.cpython-\d+-[\w-]+\.so$")


def name(version: str) -> str:
    """The name of the single file."""
    return f"busbw-{version}-linux-{MACHINE}.pyz"


def fetch(wheel: Path, folder: Path) -> list[str]:
    """Put the wheel of busbw, and those that it needs, into `folder`.

    Returns the Pythons for which pip found none.
    """
    return [python for python in PYTHONS if not _fetched(wheel, folder, python)]


def _fetched(wheel: Path, folder: Path, python: str) -> bool:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    words += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    for platform in PLATFORMS:
        words += ["--platform", f"{platform}_{MACHINE}"]
    words += ["--constraint", str(versions.ROOT / "constraints.txt"), "--dest", str(folder)]
    print("dist:", *words[1:], wheel, file=sys.stderr, flush=True)
    return subprocess.run([*words, str(wheel)], check=False).returncode == 0


def write(path: Path, version: str, wheels: Path) -> None:
    """Write the single file from the wheels in a folder."""
    members = {}
    for wheel in sorted(wheels.glob("*.whl")):
        members |= dict(_members(wheel))
    build.write(path, version, members)


def _members(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a wheel as members of the single file, without what goes outside packages."""
    with zipfile.ZipFile(wheel) as archive:
        names = [each for each in archive.namelist() if not each.endswith("/")]
        suffixes = {match[0] for match in map(SUFFIX.search, names) if match}
        folder = suffixes.pop() if suffixes else build.COMMON_FOLDER
        for each in names:
            if not each.partition("/")[0].endswith(".data"):
                yield f"{folder}/{each}", archive.read(each)
