"""Files that hold a release of NCCL, told by their names: wheels as pip downloads them, and plain
libraries.
"""

import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbw.core.errors import UsageError

EXAMPLES = "nvidia_nccl_cu13-2.32.3-*.whl, libnccl-2.32.3.so or libnccl-2.32.3.so.xz"
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
# The name of a wheel: https://packaging.python.org/en/latest/specifications/binary-distribution-format
_WHEEL = re.compile(
    r"nvidia_nccl_(?P<cuda>cu\d+)-(?P<release>\d+\.\d+\.\d+)(?:\.[a-z0-9.]+)?"
    r"(?:-\d[^-]*)?-[^-]+-[^-]+-(?P<platform>[^-]+)\.whl"
)
_PLAIN = re.compile(r"libnccl-(?P<release>\d+\.\d+\.\d+)\.so(?P<packed>\.xz)?")


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """A file and its release. `cuda` (cu13) and `platform` are those of a wheel, '' of a
    library.
    """

    path: Path
    release: str
    cuda: str = ""
    platform: str = ""

    @property
    def is_library(self) -> bool:
        """Whether the file can be loaded as it is."""
        return not self.cuda and self.path.suffix != ".xz"

    def fits(self) -> bool:
        """Whether its platform is this machine's."""
        return not self.platform or any(
            "linux" in tag and tag.endswith(f"_{platform.machine()}")
            for tag in self.platform.split(".")
        )


def is_release(text: str) -> bool:
    """Whether the text has the form of a release, such as 2.32.3."""
    return _RELEASE.fullmatch(text) is not None


def parse(path: Path) -> ReleaseFile | None:
    """What the name of a file says; None if it names no release of NCCL."""
    wheel = _WHEEL.fullmatch(path.name)
    if wheel:
        return ReleaseFile(path, wheel["release"], wheel["cuda"], wheel["platform"])
    plain = _PLAIN.fullmatch(path.name)
    return ReleaseFile(path, plain["release"]) if plain else None


def in_folder(folder: Path) -> list[ReleaseFile]:
    """The releases in a folder, sorted by name; UsageError if it cannot be read."""
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise UsageError(
            f"--wheels {folder}: {error.strerror}", f"name a folder with {EXAMPLES}"
        ) from error
    return [release_file for release_file in map(parse, files) if release_file]


def choose(files: Sequence[ReleaseFile], release: str, cuda: str) -> ReleaseFile | None:
    """The file of a release for this machine: a library before a packed one before a wheel, and the
    wheel of `cuda` before others. None if there is none.
    """
    fitting = [file for file in files if file.release == release and file.fits()]
    return min(
        fitting,
        key=lambda file: (not file.is_library, bool(file.cuda), file.cuda != cuda),
        default=None,
    )


def missing(folder: Path, files: Sequence[ReleaseFile], release: str) -> UsageError:
    """The error for a release that no file of the folder has for this machine."""
    foreign = next((file for file in files if file.release == release), None)
    if foreign:
        return UsageError(
            f"--wheels {folder}: {foreign.path.name} is for {foreign.platform}, and this machine"
            f" is {platform.machine()}",
            f"put the wheel for {platform.machine()} there",
        )
    known = releases_text(file.release for file in files)
    hint = f"it has {known}" if known else f"put files there such as {EXAMPLES}"
    return UsageError(f"--wheels {folder}: it has no NCCL {release}", hint)


def releases_text(releases: Iterable[str]) -> str:
    """`2.28.9, 2.30.7`: each release once, the oldest first."""
    return ", ".join(sorted(set(releases), key=numbers))


def numbers(release: str) -> tuple[int, ...]:
    """(2, 28, 9) for 2.28.9."""
    return tuple(map(int, release.split(".")))
