"""Every release of NCCL in the table finds tables of busbw-native, and the table says which."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from abi import NET_TABLES, PROFILERS, TUNERS, newest
from libnccls import libraries, version_of
from releases import GIN, SYMBOLS, Release, releases

OLDEST = 22800
SINCE = {
    "tuner": TUNERS,
    "profiler": PROFILERS,
    "net": {row.version: row.since for row in NET_TABLES.values()},
}
ENTRY = re.compile(rb"(?<=\0)nccl(?:TunerPlugin|Profiler|NetPlugin|GinPlugin)_v\d+(?=\0)")
VERSION = re.compile(r"(nccl\w+_v)(\d+)")


@pytest.fixture(scope="module")
def exported(plugin_library: Path) -> dict[str, set[int]]:
    """The versions that the built library exports, by kind."""
    if shutil.which("nm") is None:
        pytest.skip("no nm (binutils): make test-tools")
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", plugin_library], capture_output=True, text=True, check=True
    )
    return of_kind(listed.stdout)


def of_kind(text: str) -> dict[str, set[int]]:
    """The versions in a text of symbols, by kind."""
    found = VERSION.findall(text)
    kinds = SYMBOLS | {"gin": GIN}
    return {
        kind: {int(number) for begin, number in found if begin == symbol}
        for kind, symbol in kinds.items()
    }


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.nccl)
@pytest.mark.parametrize("kind", SYMBOLS)
def test_a_release_uses_the_newest_table_that_both_know(
    exported: dict[str, set[int]], release: Release, kind: str
) -> None:
    both = [version for version in release.sought[kind] if version in exported[kind]]
    assert both and release.used[kind] == max(both)
    assert release.used[kind] == newest(SINCE[kind], release.number), "tests/native/abi.py"
    assert release.sought[kind] == sorted(release.sought[kind], reverse=True)


def test_the_plugin_has_no_table_that_kernels_send_with(exported: dict[str, set[int]]) -> None:
    assert exported["gin"] == set()


@pytest.mark.parametrize("libnccl", libraries())
def test_libnccl_looks_for_the_tables_of_its_release(libnccl: Path) -> None:
    version = version_of(libnccl, OLDEST)
    rows = [release for release in releases() if release.number == version]
    if not rows:
        pytest.skip(f"no row for NCCL {version}: add it to native/crates/nccl-abi/releases.csv")
    names = ENTRY.findall(libnccl.read_bytes())
    sought = of_kind("\n".join(name.decode() for name in names))
    assert sought == {kind: set(rows[0].sought[kind]) for kind in SYMBOLS} | {
        "gin": set(rows[0].gin)
    }
