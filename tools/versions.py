"""The version is set in src/busbw/core/version.py.

`--write` copies it to accel/ and native/; without it, the places that differ are printed.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = "src/busbw/core/version.py"
MANIFEST = "native/Cargo.toml"
ACCEL = "accel/pyproject.toml"  # and the busbw that it needs
# and a crate of native/ in it
LOCKS = {"native/Cargo.lock": "busbw-plugin", "native/fuzz/Cargo.lock": "busbw-transport"}
VERSION = r"(\d+\.\d+\.\d+)"  # Python and Cargo write anything longer differently
PATTERNS = {
    SOURCE: rf'^__version__ = "{VERSION}"',
    MANIFEST: rf'^version = "{VERSION}"',
    ACCEL: rf'^version = "{VERSION}"(?=[\s\S]*"busbw==\1")',
    **{path: rf'^name = "{crate}"\nversion = "{VERSION}"' for path, crate in LOCKS.items()},
    "CHANGELOG.md": rf"^(?:This will be |## \[){VERSION}",  # before and after the release
}


def found(root: Path = ROOT) -> dict[str, str]:
    """The version in each place; empty where there is none."""
    matches = {
        path: re.search(pattern, (root / path).read_text(encoding="utf-8"), re.MULTILINE)
        for path, pattern in PATTERNS.items()
    }
    return {path: match[1] if match else "" for path, match in matches.items()}


def problem(root: Path = ROOT) -> str:
    """Names the places whose version is not that of SOURCE, and what sets it; empty if there are
    none.
    """
    versions = found(root)
    other = [
        f"{path} has {version or 'no version'}"
        for path, version in versions.items()
        if version != versions[SOURCE]
    ]
    if not other:
        return ""
    return (
        f"error: {SOURCE} has {versions[SOURCE]}, but {', '.join(other)}\n\n"
        f"hint: make version, and"
        " for the changelog see CONTRIBUTING.md"
    )


def write() -> None:
    """Copies the version of SOURCE to accel/ and to the manifest and the lock files of native/."""
    version = found()[SOURCE]
    for path in (ROOT / ACCEL, ROOT / MANIFEST):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r'(?m)^version = ".*?"', f'version = "{version}"', text, count=1)
        text = re.sub(r'"busbw==.*?"', f'"busbw=={version}"', text)
        path.write_text(text, encoding="utf-8")
    for lock in LOCKS:
        command = [
            "cargo",
            "update",
            "--quiet",
            "--workspace",
            "--manifest-path",
            ROOT / lock.replace(".lock", ".toml"),
        ]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    sys.exit(problem() or None)
