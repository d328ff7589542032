"""Builds the single file: a zip that Python starts, with busbw and its dependencies inside.

It holds `__main__.py`, `busbw_file.py`, `busbw_built.py` and `packages.zip`. There are few names in
it because every start reads them all. The same packages give the same bytes.
"""

import hashlib
import io
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from busbw.core.errors import NoMeasurement

COMMON_FOLDER = "common"  # for all Pythons
SHEBANG = b"#!/usr/bin/env python3\n"
DESCRIPTION = "busbw_built.py"  # says what is in the file
COMPRESSION_LEVEL = 9  # the smallest file
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can have
_REQUIRED = re.compile(r"[A-Za-z0-9._-]+")
_HERE = Path(__file__).parent


def write(path: Path, version: str, members: Mapping[str, bytes]) -> None:
    """Write the single file, which other processes see whole or not at all.

    `members` are the files of the packages. Their first folder is COMMON_FOLDER, or the suffix of
    extension modules of the Python that they are for. OSError if it cannot be written.
    """
    folders = {name.partition("/")[0] for name in members} - {COMMON_FOLDER}
    suffixes = sorted(folders, key=lambda suffix: [int(n) for n in re.findall(r"\d+", suffix)])
    packages = io.BytesIO()
    with zipfile.ZipFile(packages, "w") as archive:
        for name, data in sorted(members.items()):
            _add(archive, name, data, zipfile.ZIP_DEFLATED)
    digest = hashlib.sha256(packages.getvalue()).hexdigest()
    built = f'VERSION = "{version}"\nDIGEST = "{digest}"\nSUFFIXES = {tuple(suffixes)!r}\n'
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(SHEBANG)
            with zipfile.ZipFile(file, "w") as archive:
                _add(archive, "__main__.py", (_HERE / "zip_main.py").read_bytes())
                _add(archive, DESCRIPTION, built.encode())
                _add(archive, "busbw_file.py", (_HERE / "busbw_file.py").read_bytes())
                _add(archive, "packages.zip", packages.getvalue())
        temporary.chmod(0o755)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _add(
    archive: zipfile.ZipFile, name: str, data: bytes, compression: int = zipfile.ZIP_STORED
) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data, compression, COMPRESSION_LEVEL)


def of_this_python() -> dict[str, bytes]:
    """The members for `write` of the busbw that runs, and of the packages that it needs.

    They are for Pythons of this version alone. NoMeasurement if a package is not installed.
    """
    members = {f"{COMMON_FOLDER}/busbw/{name}": data for name, data in _busbw()}
    suffix = EXTENSION_SUFFIXES[0]
    for package in _required("busbw", set()):
        for file in package.files or ():
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            members[f"{suffix}/{file.as_posix()}"] = Path(str(file.locate())).read_bytes()
    return members


def _busbw() -> Iterator[tuple[str, bytes]]:
    root = _HERE.parents[1]
    for path in root.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(root).as_posix(), path.read_bytes()


def _required(name: str, visited: set[str]) -> Iterator[Distribution]:
    """The packages that a package needs without its extras, each once."""
    for line in distribution(name).requires or ():
        requirement, _, marker = line.partition(";")
        match = _REQUIRED.match(requirement)
        if match is None or "extra" in marker or match[0] in visited:
            continue
        visited.add(match[0])
        try:
            package = distribution(match[0])
        except PackageNotFoundError as error:
            if marker:  # for another system or Python
                continue
            raise NoMeasurement(
                f"{match[0]}, which {name} needs, is not installed", f"pip install {match[0]}"
            ) from error
        yield package
        yield from _required(match[0], visited)
