"""Libraries of NCCL and of its plugins, found in folders."""

from types import SimpleNamespace

import pytest

from busbw.host import nccl_libraries
from busbw.host.source import Unavailable


def installed(folder, text):
    folder.mkdir(parents=True)
    (folder / nccl_libraries.NAME).write_bytes(b"\x7fELF\0" + text)
    return folder


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """No folder of the system, and no Python package."""
    monkeypatch.setattr(nccl_libraries, "FOLDERS", ())
    monkeypatch.setattr(nccl_libraries, "find_spec", lambda name: None)
    return tmp_path


def test_version_is_read_from_the_file(folders, monkeypatch):
    new = installed(folders / "new", b"NCCL version info\0NCCL version 2.27.7+cuda12.9\0")
    old = installed(folders / "old", b"no version")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{new}:{old}:{folders}/none:")
    libraries = nccl_libraries.parse(nccl_libraries.live())
    assert [(library.path, library.version) for library in libraries] == [
        (f"{new}/libnccl.so.2", "2.27.7"),
        (f"{old}/libnccl.so.2", ""),
    ]


def test_file_with_two_paths_is_one_library(folders, monkeypatch):
    real = installed(folders / "a", b"NCCL version 2.21.5+cuda12.4")
    (folders / "b").symlink_to(real)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{real}:{folders / 'b'}")
    assert len(nccl_libraries.parse(nccl_libraries.live())) == 1


def test_library_of_a_package_comes_first_and_an_empty_one_has_no_version(folders, monkeypatch):
    package = folders / "nvidia" / "nccl"
    installed(package / "lib", b"").joinpath(nccl_libraries.NAME).write_bytes(b"")
    monkeypatch.setattr(
        nccl_libraries,
        "find_spec",
        lambda _: SimpleNamespace(submodule_search_locations=[str(package)]),
    )
    monkeypatch.setattr(
        nccl_libraries,
        "FOLDERS",
        (str(installed(folders / "system", b"NCCL version 2.21.5+cuda12.4")),),
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    libraries = nccl_libraries.parse(nccl_libraries.live())
    packaged = nccl_libraries.LibraryFile(f"{package}/lib/libnccl.so.2", "", nccl_libraries.PACKAGE)
    assert libraries == (
        packaged,
        nccl_libraries.LibraryFile(f"{folders}/system/libnccl.so.2", "2.21.5", f"{folders}/system"),
    )


def test_plugin_is_found_by_name_and_by_suffix(folders, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folders))
    (folders / "libnccl-net-ofi.so").write_bytes(b"")
    assert nccl_libraries.located("ofi", "net") == f"{folders}/libnccl-net-ofi.so"
    assert nccl_libraries.located("libnccl-net-ofi.so", "tuner") == f"{folders}/libnccl-net-ofi.so"
    assert nccl_libraries.located("ofi", "tuner") == ""
    assert nccl_libraries.located(f"{folders}/libnccl-net-ofi.so", "net")
    assert nccl_libraries.located("/nowhere/x.so", "net") == ""


def test_without_a_folder_to_search_libraries_are_unavailable(folders, monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with pytest.raises(Unavailable):
        nccl_libraries.located("ofi", "net")
