"""The wheels of busbw and busbw-native, and both installed together where there is no cargo."""

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path

import pytest

from busbw.core.native import LIBRARY, PACKAGE
from busbw.core.version import __version__
from busbw.launch import mpirun

ROOT = Path(__file__).parents[2]


def build(folder: Path, where: Path, *command: object) -> Path:
    """The wheel that a module of this Python builds into `where`."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command), where],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = where.iterdir()
    return wheel


def packages(home: Path) -> Path:
    """The folder of an environment's packages."""
    return Path(get_path("purelib", "venv", {"base": str(home)}))


@pytest.fixture(scope="module")
def native_wheel(
    plugin_library: Path,
    alone_in_native: Callable[[], AbstractContextManager[None]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Of the library that the other tests load: cargo finds it built."""
    if not find_spec("maturin") or not find_spec("cffi"):
        pytest.skip("no maturin with cffi to build a wheel with")
    options = ("--release", "--compatibility", "linux", "-i", sys.executable)
    where = tmp_path_factory.mktemp("native")
    with alone_in_native():
        return build(ROOT / "native", where, "maturin", "build", *options, "-o")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of busbw."""
    if not find_spec("hatchling"):
        pytest.skip("no hatchling to build a wheel with")
    return build(
        ROOT,
        tmp_path_factory.mktemp("busbw"),
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
    )


@pytest.fixture
def environment(wheel: Path, native_wheel: Path, tmp_path: Path) -> Path:
    """Has only the two wheels, and the packages that they need from the environment of the
    tests.
    """
    home = tmp_path / "environment"
    venv.create(home, with_pip=False)
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        home / "bin" / "python",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    done = subprocess.run(
        [*install, wheel, native_wheel], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Folders of packages, not sys.path, which has the sources of an editable busbw.
    needed = {
        str(Path(spec.origin).parents[1])
        for name in ("click", "mpi4py", "numpy")
        if (spec := find_spec(name)) and spec.origin
    }
    (packages(home) / "needed.pth").write_text("\n".join(sorted(needed)))
    (home / "bin" / "mpirun").symlink_to(mpirun.find().path)
    return home


def test_the_wheel_contains_every_schema(wheel: Path) -> None:
    schemas = {
        f"busbw/schemas/{path.name}" for path in (ROOT / "src" / "busbw" / "schemas").iterdir()
    }
    with zipfile.ZipFile(wheel) as file:
        assert schemas <= set(file.namelist())
    assert len(schemas) > 20


def test_native_wheel_contains_the_library_and_has_no_dependencies(
    native_wheel: Path, plugin_library: Path
) -> None:
    assert f"-{__version__}-py3-none-linux_" in native_wheel.name
    with zipfile.ZipFile(native_wheel) as file:
        names = {info.filename: info.file_size for info in file.infolist()}
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        assert b"Requires-Dist" not in file.read(metadata)
    assert names[f"{PACKAGE}/{LIBRARY}"] == plugin_library.stat().st_size, (
        "the library that the other tests load"
    )
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_wheel_contains_the_package_its_manual_pages_and_its_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = [Path(name) for name in file.namelist()]
        (metadata,) = (file.read(str(name)).decode() for name in names if name.name == "METADATA")
    suffixes: dict[str, set[str]] = {}
    for name in names:
        suffixes.setdefault(name.parts[0], set()).add(name.suffix)
    assert suffixes.pop("busbw") == {
        ".csv",
        ".toml",
        ".py",
        ".cu",
        ".css",
        ".sh",
        ".typed",
        ".json",
        ".service",
        ".timer",
        ".yml",
    }, "no caches, no data of tests"
    assert {name.parent.name for name in names if name.suffix == ".json"} == {
        "cli",
        "reference",
        "schemas",
        "templates",
    }
    assert suffixes.pop(f"busbw-{__version__}.data") == {".1"}
    assert list(suffixes) == [f"busbw-{__version__}.dist-info"]
    assert f"Version: {__version__}\n" in metadata
    assert "License-File: LICENSE\n" in metadata


def test_installed_wheels_run_and_load_the_plugin_without_cargo(
    environment: Path, tmp_path: Path
) -> None:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BUSBW_", "NCCL_", "PYTHON"))
    }
    clean["PATH"] = os.pathsep.join([str(environment / "bin"), "/usr/bin", "/bin"])

    def busbw(*words: str) -> str:
        command = [environment / "bin" / "busbw", *words]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=clean,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert busbw("--version").split()[-1] == __version__
    assert f"export NCCL_NET_PLUGIN={packages(environment) / PACKAGE / LIBRARY}\n" in busbw(
        "run", "--net", "busbw", "--print-env"
    )
    assert busbw(
        "run", "all_reduce", "--engine", "mpi", "-b", "1K", "-e", "1K", "-np", "2", "--iters", "5"
    ).startswith("AllReduce, 2 x ")
