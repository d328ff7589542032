"""A release of NCCL is found in a folder, in the cache or by pip, and only its library is taken."""

import hashlib
import os
import platform
import zipfile
from pathlib import Path

import fake_nccl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.host.nccl_releases import find as releases
from busbw.host.nccl_releases import names, pip, probe, unpack


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "busbw" / "nccl"


@pytest.fixture
def nccl(library):
    """`nccl("2.28.9")` builds a library of that release."""
    return lambda release, **about: library(
        fake_nccl.source(release, **about), f"built-{release}.so"
    )


def test_a_wheel_gives_its_library_and_nothing_else(tmp_path, cache, nccl):
    wheels = tmp_path / "wheels"
    built = nccl("2.32.3")
    fake_nccl.wheel(wheels, "2.32.3", built)
    found = releases.find("2.32.3", wheels)
    assert found.version == 23203
    assert found.sha256 == hashlib.sha256(built.read_bytes()).hexdigest()
    written = [path for path in cache.rglob("*") if path.is_file() and path.name != "lock"]
    assert sorted(path.name for path in written) == [
        "libnccl-2.32.3.so",
        "libnccl-2.32.3.so.sha256",
    ]
    assert not list(tmp_path.glob("**/outside"))

    first = Path(found.path).stat().st_ino
    assert releases.find("2.32.3", wheels) == found
    assert Path(found.path).stat().st_ino == first, "it was unpacked twice"
    Path(found.path).write_bytes(b"damaged")
    assert releases.find("2.32.3", wheels) == found


def test_a_library_goes_before_a_packed_one_and_that_before_wheels(tmp_path, nccl):
    plain, wheels = nccl("2.28.9"), tmp_path / "wheels"
    fake_nccl.wheel(wheels, "2.28.9", plain, cuda="cu12")
    fake_nccl.wheel(wheels, "2.28.9", plain, cuda="cu13")
    fake_nccl.wheel(wheels, "2.28.9", plain, cuda="cu13", machine="riscv64")
    files = names.in_folder(wheels)
    assert [names.choose(files, "2.28.9", cuda).cuda for cuda in ("cu12", "cu13")] == [
        "cu12",
        "cu13",
    ]
    packed = fake_nccl.packed(wheels, "2.28.9", plain)
    assert names.choose(names.in_folder(wheels), "2.28.9", "cu13").path == packed
    assert releases.find("2.28.9", wheels).version == 22809
    copy = wheels / "libnccl-2.28.9.so"
    copy.write_bytes(plain.read_bytes())
    assert releases.find("2.28.9", wheels).path == str(copy), "a plain library is used in place"
    assert releases.find(str(plain), None).path == str(plain)


class Broken:
    """Each method puts one file into a folder that gives no release 2.30.7, and returns words of the
    error and of its hint.
    """

    def __init__(self, folder, nccl):
        self.folder, self.nccl = folder, nccl
        self.plain, self.good = folder / "libnccl-2.30.7.so", nccl("2.30.7")

    def other_release(self):
        self.plain.write_bytes(self.nccl("2.28.9").read_bytes())
        return "libnccl-2.30.7.so is NCCL 2.28.9", "the name of its release"

    def old_release(self):
        self.plain.write_bytes(self.nccl("2.30.7", functions=("ncclGetUniqueId",)).read_bytes())
        return "NCCL 2.30.7 has no ncclCommInitRankConfig", "busbw needs NCCL 2.14 or newer"

    def text(self):
        self.plain.write_text("hello")
        return "the file is no shared library", "file "

    def foreign_library(self):
        data = bytearray(self.good.read_bytes())
        data[18:20] = b"\xf3\0"  # RISC-V
        self.plain.write_bytes(data)
        return f"the library is not for {platform.machine()}", "file "

    def cut_library(self):
        self.plain.write_bytes(self.good.read_bytes()[:2000])
        return "loading it kills the process with SIGBUS", "get it again"

    def foreign_wheel(self):
        fake_nccl.wheel(self.folder, "2.30.7", self.good, machine="riscv64")
        return "is for manylinux_2_18_riscv64, and this machine is", platform.machine()

    def cut_wheel(self):
        wheel = fake_nccl.wheel(self.folder, "2.30.7", self.good)
        wheel.write_bytes(wheel.read_bytes()[:-100])
        return "it cannot be unpacked: ", "get it again"

    def wheel_of_something(self):
        with zipfile.ZipFile(fake_nccl.wheel(self.folder, "2.30.7", self.good), "w") as archive:
            archive.writestr("nvidia/nccl/lib/other.so", b"")
        return "no wheel of NCCL: it has no nvidia/nccl/lib/libnccl.so.2", "get it again"

    def changed_wheel(self):
        fake_nccl.wheel(self.folder, "2.30.7", self.good, recorded=b"what NVIDIA packed")
        return "is not the one in the wheel's RECORD", "get it again"

    def not_xz(self):
        (self.folder / "libnccl-2.30.7.so.xz").write_bytes(self.good.read_bytes())
        return "it cannot be unpacked: ", "get it again"

    def missing(self):
        fake_nccl.packed(self.folder, "2.28.9", self.good)
        return "it has no NCCL 2.30.7", "it has 2.28.9"


KINDS = [name for name in vars(Broken) if not name.startswith("_")]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_release_is_refused_by_name(kind, tmp_path, cache, nccl):
    folder = tmp_path / "wheels"
    folder.mkdir()
    message, hint = getattr(Broken(folder, nccl), kind)()
    with pytest.raises(UsageError) as caught:
        releases.find("2.30.7", folder)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert not list(cache.glob("*/*.sha256")), "a broken file was kept"


def test_a_library_of_another_program_and_one_that_is_too_large(
    library, tmp_path, monkeypatch, nccl
):
    with pytest.raises(UsageError, match="the library is no NCCL: it has no ncclGetVersion"):
        releases.find(str(library("int other;", "libother.so")), None)
    monkeypatch.setattr(unpack, "MAX_BYTES", 1000)
    wheel = fake_nccl.wheel(tmp_path / "wheels", "2.30.7", nccl("2.30.7"))
    with pytest.raises(UsageError, match="the library has more than 1000 B"):
        releases.find("2.30.7", wheel.parent)
    assert not [path for path in tmp_path.rglob("tmp*") if path.is_file()]


def test_a_library_that_hangs_while_it_loads_is_given_up(library, monkeypatch):
    monkeypatch.setattr(probe, "LIMIT_S", 0.5)
    source = "#include <unistd.h>\n__attribute__((constructor)) void f(void) { pause(); }"
    with pytest.raises(UsageError, match=r"it does not load within 0\.5 s"):
        releases.find(str(library(source)), None)


@pytest.mark.parametrize("release", ["2.28", "newest", "2.28.9rc1"])
def test_a_release_has_three_numbers(release):
    with pytest.raises(UsageError, match="a release has three numbers"):
        releases.find(release, None)


def test_pip_gets_a_release_once_and_lists_what_it_has(tmp_path, cache, monkeypatch, nccl):
    index = tmp_path / "index"
    for release in ("2.28.9", "2.30.7"):
        fake_nccl.wheel(index, release, nccl(release))
    monkeypatch.setattr(pip, "cuda_of_wheels", lambda: "cu13")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    found = releases.find("2.30.7", None)
    assert (found.version, found.path) == (23007, str(cache / "cu13" / "libnccl-2.30.7.so"))
    with pytest.raises(UsageError) as unknown:
        releases.find("2.99.9", None)
    assert unknown.value.hint == "it lists 2.28.9, 2.30.7"
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert releases.find("2.30.7", None) == found, "what is in the cache needs no pip"


@pytest.mark.parametrize(
    ("printed", "message", "hint"),
    [
        ("/usr/bin/python: No module named pip", "has no pip", "-m ensurepip"),
        ("ERROR: ... (from versions: none)", "it may have no network", "--wheels DIR"),
        ("ERROR: 403 Client Error\n", "cannot get nvidia-nccl-cu13 2.30.7: 403", "--wheels DIR"),
        ("killed", "cannot get nvidia-nccl-cu13 2.30.7: killed", "--wheels DIR"),
    ],
)
def test_what_pip_says_becomes_an_error(printed, message, hint, monkeypatch, tmp_path):
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{printed}\nEND\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(pip.sys, "executable", str(fake))
    with pytest.raises(NoMeasurement) as caught:
        pip.download("2.30.7", "cu13", tmp_path)
    assert message in caught.value.message
    assert hint in caught.value.hint


@given(st.text(alphabet="nvidia_cl-.0123456789xzsowhpy", max_size=40))
def test_any_file_name_is_a_release_or_none(name):
    file = names.parse(Path(f"wheels/{name}"))
    assert file is None or names.is_release(file.release)


def test_a_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path, nccl):
    wheel = fake_nccl.wheel(tmp_path / "wheels", "2.30.7", nccl("2.30.7"))
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no")
    with pytest.raises(BusbwError, match=r"/proc/no/busbw/nccl: "):
        releases.find("2.30.7", wheel.parent)
