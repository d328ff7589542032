"""The plugin's library is found without importing its package, and its errors are reported
before NCCL loads it.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.core.errors import NoMeasurement
from busbw.host import net_plugin

Build = Callable[..., Path]
NEVER = "raise RuntimeError('imported')"


@pytest.fixture(autouse=True)
def none_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUSBW_PLUGIN", raising=False)


def package(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """An installed busbw-native that cannot be imported."""
    home = folder / "busbw_native"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text(NEVER)
    monkeypatch.syspath_prepend(str(folder))
    return home


def error(call: Callable[..., object], *words: object) -> NoMeasurement:
    with pytest.raises(NoMeasurement) as caught:
        call(*words)
    assert caught.value.hint
    return caught.value


def test_the_packages_library_is_found_without_import(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = package(monkeypatch, tmp_path)
    (home / "plugin").mkdir()
    (home / "plugin" / "libplugin.so").touch()
    assert net_plugin.find() == home / "plugin" / "libplugin.so"
    assert "busbw_native" not in sys.modules


def test_a_package_without_library_suggests_reinstalling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = package(monkeypatch, tmp_path)
    monkeypatch.setattr(sys, "executable", "/opt/installs/bin/python")
    failure = error(net_plugin.find)
    assert failure.message == f"busbw-native in {home} has no plugin/libplugin.so"
    assert failure.hint == (
        "/opt/installs/bin/python -m pip install --force-reinstall busbw-native"
        "   (in a checkout of busbw: pip install --force-reinstall ./native)"
    )


def test_without_the_package_the_hint_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    failure = error(net_plugin.find)
    assert failure.message == f"busbw-native is not installed for {sys.executable}"
    assert "pip install busbw-native" in failure.hint
    assert "pip install ./native" in failure.hint


def test_a_library_named_by_hand_comes_first_and_must_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUSBW_PLUGIN", "own.so")
    assert error(net_plugin.find).message == "BUSBW_PLUGIN=own.so: no such file"
    Path("own.so").touch()
    assert net_plugin.find() == tmp_path / "own.so", "NCCL may run in another directory"


@pytest.mark.parametrize(("size", "accepted"), [(254, True), (255, False)])
def test_a_path_longer_than_nccl_keeps_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, accepted: bool
) -> None:
    folder = tmp_path / ("d" * 60)
    folder.mkdir()
    path = folder / ("l" * (size - len(str(folder)) - 1))
    path.touch()
    monkeypatch.setenv("BUSBW_PLUGIN", str(path))
    if accepted:
        assert len(str(net_plugin.find())) == size
    else:
        assert (
            f"the path has {size} bytes, NCCL takes at most 254" in error(net_plugin.find).message
        )


def test_a_path_with_a_comma_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a,b.so"
    path.touch()
    monkeypatch.setenv("BUSBW_PLUGIN", str(path))
    assert "the comma" in error(net_plugin.find).message


def test_a_library_with_both_tables_passes(library: Build) -> None:
    net_plugin.check(library())


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int ncclNetPlugin_v8 = 8;", "NCCL cannot load {path}: it has no ncclNetPlugin_v11"),
        ("int other;", "NCCL cannot load {path}: it has no ncclNetPlugin_v8, ncclNetPlugin_v11"),
        (
            "void gone(void); void f(void) { gone(); }",
            "NCCL cannot load {path}: undefined symbol: gone",
        ),
        (
            "#include <stdlib.h>\n__attribute__((constructor)) void f(void) { abort(); }",
            "loading {path} kills the process with SIGABRT",
        ),
        (
            "#include <unistd.h>\n__attribute__((constructor)) void f(void) { pause(); }",
            "{path} does not load within 1.5 s",
        ),
    ],
)
def test_an_unloadable_library_is_reported(library: Build, source: str, message: str) -> None:
    path = library(source)
    assert error(net_plugin.check, path, 1.5).message == message.format(path=path)


def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.so"
    path.write_text("words")
    assert error(net_plugin.check, path).message == f"NCCL cannot load {path}: file too short"


def test_the_variables_name_the_library_of_this_host(
    monkeypatch: pytest.MonkeyPatch, library: Build
) -> None:
    path = library()
    monkeypatch.setenv("BUSBW_PLUGIN", str(path))
    assert net_plugin.variables("busbw") == {
        "NCCL_NET_PLUGIN": str(path),
        "NCCL_NET": "busbw",
        "NCCL_NET_PLUGIN_REF_COUNT": "1",
    }
    assert net_plugin.variables("") == {}


def test_nccls_own_networks_need_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert net_plugin.variables("ib") == {
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_NET_PLUGIN": "none",
    }


ANSWERS = """
#include <string.h>
unsigned busbw_net_mbps(const char *at) {  /* the value of SPEED in a block of NAME=value, each with its zero byte */
    unsigned found = 0;
    for (; *at; at += strlen(at) + 1)
        if (!strncmp(at, "SPEED=", 6)) for (const char *digit = at + 6; *digit; digit++) found = 10 * found + *digit - '0';
    return found;
}
const char *busbw_version(void) { return "0.4.2"; }
"""


@pytest.mark.parametrize(
    ("variables", "rate"),
    [({"A": "", "SPEED": "8000", "B": "1"}, 1e9), ({"A": "SPEED=1"}, None), ({}, None)],
)
def test_the_library_answers_for_an_environment(
    monkeypatch: pytest.MonkeyPatch, library: Build, variables: dict[str, str], rate: float | None
) -> None:
    path = library(ANSWERS)
    monkeypatch.setenv("BUSBW_PLUGIN", str(path))
    assert (net_plugin.rate(variables), net_plugin.version(path)) == (rate, "0.4.2")


@pytest.mark.parametrize("source", ["int other;", "void gone(void); void f(void) { gone(); }"])
def test_a_library_without_an_answer_leaves_the_rate_unknown(
    monkeypatch: pytest.MonkeyPatch, library: Build, source: str
) -> None:
    path = library(source)
    monkeypatch.setenv("BUSBW_PLUGIN", str(path))
    assert net_plugin.rate({}) is None
    assert "gone" in source or net_plugin.version(path) == ""
