"""Gets the wheel of a release with pip, whose own configuration says from where."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from busbw.core.errors import NoMeasurement, UsageError
from busbw.host.nccl_releases.names import is_release, releases_text

LIMIT_S = 900.0  # 300 MB at 3 Mbit/s
RETRIES = 1
_LISTED = re.compile(r"\(from versions: ([^)]*)\)")


def cuda_of_wheels() -> str:
    """The part of the names of wheels for the CUDA of this Python's packages: cu12, cu13."""
    try:
        major = metadata.version("cuda-bindings").partition(".")[0]
    except metadata.PackageNotFoundError:
        return "cu13"
    return f"cu{major}"


def download(release: str, cuda: str, folder: Path) -> Path:
    """Download the wheel into an empty folder; returns its path.

    UsageError for a release that pip does not list, NoMeasurement if pip is missing or fails.
    """
    package = f"nvidia-nccl-{cuda}"
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options]
    command += [f"--retries={RETRIES}", f"--dest={folder}", f"{package}=={release}"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoMeasurement(
            f"pip did not get {package} {release} within {LIMIT_S:g} s", _by_hand(package, release)
        ) from error
    if done.returncode:
        raise _failure(package, release, done.stderr)
    return next(folder.glob("*.whl"))


def _by_hand(package: str, release: str) -> str:
    return f"pip download --no-deps {package}=={release} -d DIR elsewhere, then add --wheels DIR"


def _failure(package: str, release: str, stderr: str) -> UsageError | NoMeasurement:
    """The error for what pip printed."""
    if "No module named pip" in stderr:
        return NoMeasurement(
            f"{sys.executable} has no pip, which gets NCCL {release}",
            f"{sys.executable} -m ensurepip, or name a folder of wheels: --wheels DIR",
        )
    listed = _LISTED.search(stderr)
    known = filter(is_release, listed[1].split(", ")) if listed else ()
    releases = releases_text(known)
    if releases:
        return UsageError(
            f"--nccl {release}: pip lists no such release of {package} for this machine",
            f"it lists {releases}",
        )
    if listed:
        return NoMeasurement(
            f"pip finds no release of {package}: it may have no network, or another index",
            _by_hand(package, release),
        )
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR: ")]
    reason = errors[-1].removeprefix("ERROR: ") if errors else stderr.strip()[-300:]
    return NoMeasurement(
        f"pip cannot get {package} {release}: {reason}", _by_hand(package, release)
    )
