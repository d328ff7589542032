"""Checks of the files that `make dist` builds. Each ends the build with an error."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import dist_file
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from elftools.elf.elffile import ELFFile

from busbw.core.native import LIBRARY, PACKAGE
from busbw.host.net_plugin import SYMBOLS

ROOT = Path(__file__).parents[1]
EXPORTED = re.compile(r"busbw_\w+|nccl(NetPlugin|TunerPlugin|Profiler)_v\d+")


def check(folder: Path, policy: str) -> None:
    """Metadata of all packages, then tag and exports of each native wheel."""
    tool("twine", "check", "--strict", *folder.glob("*.whl"), *folder.glob("*.tar.gz"))
    for wheel in folder.glob("busbw_native-*.whl"):
        tag(wheel, policy)
        exports(wheel)


def output(*command: str | Path) -> str:
    """What a command prints; ends the build if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    require(not done.returncode, f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout.rstrip()


def tool(*command: str | Path) -> str:
    """What a module of this Python prints."""
    return output(sys.executable, "-m", *command)


def require(right: bool, message: str) -> None:
    """Ends the build if a check fails."""
    if not right:
        sys.exit(f"error: {message}")


def tag(wheel: Path, policy: str) -> None:
    """auditwheel finds the symbol versions of the name's tag, no library from outside, and no
    instructions that old CPUs lack.
    """
    found = json.loads(tool("auditwheel", "show", "--json", wheel))
    names = [name for versions in found["versioned_symbols"].values() for name in versions]
    glibc = max(
        tuple(map(int, name.removeprefix("GLIBC_").split(".")))
        for name in names
        if name.startswith("GLIBC_")
    )
    wanted = tuple(map(int, policy.removeprefix("manylinux_").split("_")))
    require(
        found["overall_tag"] in wheel.name and policy in found["overall_tag"],
        f"{wheel.name} is {found['overall_tag']}",
    )
    require(glibc <= wanted, f"{wheel.name} needs glibc {glibc}")
    require(not found["external_libs"], f"{wheel.name} needs {found['external_libs']}")
    require(not found["unsupported_isa"], f"{wheel.name} needs an extended instruction set")


def exports(wheel: Path) -> None:
    """The library exports NCCL's tables and busbw's functions, nothing else."""
    with zipfile.ZipFile(wheel) as file:
        data = file.read(f"{PACKAGE}/{LIBRARY}")
    symbols = ELFFile(BytesIO(data)).get_section_by_name(".dynsym").iter_symbols()
    names = {
        each.name
        for each in symbols
        if each["st_shndx"] != "SHN_UNDEF" and each["st_info"]["bind"] != "STB_LOCAL"
    }
    other = sorted(name for name in names if not EXPORTED.fullmatch(name))
    missing = sorted({*SYMBOLS, "busbw_version"} - names)
    require(not other and not missing, f"{wheel.name} also exports {other}, and lacks {missing}")
    anonymous(f"the library of {wheel.name}", data)


def anonymous(name: str, data: bytes) -> None:
    """Nothing names a folder of this machine, or the registry that cargo downloaded from."""
    found = [
        path for path in (f"{ROOT}/", f"{Path.home()}/", "registry/src/") if path.encode() in data
    ]
    require(not found, f"{name} contains {found}")


def sbom(path: Path) -> None:
    """Validates against CycloneDX's schema."""
    text = path.read_text(encoding="utf-8")
    version = SchemaVersion.from_version(json.loads(text)["specVersion"])
    found = JsonStrictValidator(version).validate_str(text)
    require(found is None, f"{path.name}: {found}")
    anonymous(path.name, text.encode())


def single_file(path: Path, version: str, cache: Path) -> None:
    """The single file starts with each of its Pythons that is on PATH, and without any other
    package.
    """
    anonymous(path.name, path.read_bytes())
    if platform.machine() != dist_file.MACHINE:
        return
    clean = _clean_environment() | {"XDG_CACHE_HOME": str(cache)}
    for interpreter in _pythons():
        done = subprocess.run(
            [interpreter, "-I", path, "--version"],
            capture_output=True,
            text=True,
            check=False,
            env=clean,
        )
        right = not done.returncode and done.stdout.split()[-1:] == [version]
        require(right, f"{interpreter} {path.name} --version: {done.stdout}{done.stderr}")


def _pythons() -> list[str]:
    """This Python, and those on PATH that the single file is built for, if they run."""
    found = [shutil.which(f"python{each}") for each in dist_file.PYTHONS]
    able = [
        path
        for path in filter(None, found)
        if not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
    ]
    return [sys.executable, *able]


def _clean_environment() -> dict[str, str]:
    """The environment without settings of busbw, NCCL and Python."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BUSBW_", "NCCL_", "PYTHON"))
    }


def install(folder: Path, version: str, home: Path) -> Path:
    """Installs the wheels for this machine into a new environment at `home`, runs both, and removes
    busbw-native.

    Returns the environment's Python.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    interpreter = home / "bin" / "python"
    pip = ("pip", "--python", interpreter, "--quiet", "--disable-pip-version-check")
    natives = list(folder.glob(f"busbw_native-*_{platform.machine()}.whl"))
    tool(*pip, "install", "-c", ROOT / "constraints.txt", *folder.glob("busbw-*.whl"), *natives)
    clean = _clean_environment()
    lines = [["--version"], *([["run", "--net", "busbw", "--print-env"]] if natives else [])]
    for words in lines:
        done = subprocess.run(
            [home / "bin" / "busbw", *words], capture_output=True, text=True, check=False, env=clean
        )
        require(not done.returncode, f"busbw {' '.join(words)}: {done.stderr}")
        require(
            words != ["--version"] or done.stdout.split()[-1] == version,
            f"busbw --version prints {done.stdout}",
        )
    if natives:
        tool(*pip, "uninstall", "--yes", "busbw-native")
    return interpreter


def add_accel(folder: Path, interpreter: Path) -> None:
    """Installs busbw-accel beside busbw; its commands are there then, and say before what is
    missing.
    """
    busbw = interpreter.with_name("busbw")
    clean = _clean_environment()
    before = subprocess.run(
        [busbw, "train"], capture_output=True, text=True, check=False, env=clean
    )
    require("busbw-accel, which is not installed" in before.stderr, before.stderr)
    [wheel] = folder.glob("busbw_accel-*.whl")
    pip = ("pip", "--python", interpreter, "--quiet", "--disable-pip-version-check")
    tool(*pip, "install", "--no-deps", wheel)
    done = subprocess.run([busbw, "plan", "--help"], capture_output=True, check=False, env=clean)
    require(not done.returncode, f"busbw plan --help: {done.stderr!r}")
