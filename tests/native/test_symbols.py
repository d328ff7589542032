"""What NCCL finds in the built library before any traffic, seen by a C program and by nm: no GPU and no NCCL."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("dlopen.c")
TABLES = {"ncclNetPlugin_v8", "ncclNetPlugin_v11", "ncclTunerPlugin_v2", "ncclTunerPlugin_v5"}
INFO, WARN = 3, 2
INVALID_USAGE = 5


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program, built."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build the C program that loads the library")
    program = tmp_path_factory.mktemp("dlopen") / "dlopen"
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", program, SOURCE, "-ldl"], check=True)
    return program


def load(loader: Path, library: Path, what: str, **env: str) -> str:
    """What the program answers, with no setting of NCCL's or the plugin's but these."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "BUSBW_"))}
    run = subprocess.run([loader, library, what], capture_output=True, text=True, timeout=60, env=clean | env)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_c_program_finds_both_tables_and_the_library_stays_loaded(loader: Path, plugin_library: Path) -> None:
    assert load(loader, plugin_library, "tables") == "ncclNetPlugin_v8 and ncclNetPlugin_v11: busbw, 19 and 22 entries\n"


def test_every_property_of_every_device_is_set_in_both_versions(loader: Path, plugin_library: Path) -> None:
    assert "devices with all properties in both versions" in load(loader, plugin_library, "devices")


@pytest.mark.parametrize(("env", "level"), [({"NCCL_NET": "BusBW"}, WARN), ({"NCCL_NET": "Socket"}, INFO), ({}, INFO)])
def test_a_refused_setting_is_one_line_and_a_warning_only_where_busbw_is_asked_for(
    loader: Path, plugin_library: Path, env: dict[str, str], level: int
) -> None:
    lines = load(loader, plugin_library, "init", BUSBW_NET_FAMILY="8", **env).splitlines()
    assert lines[1::2] == [f"v8: {INVALID_USAGE}", f"v11: {INVALID_USAGE}"]
    for line in lines[::2]:
        assert line.startswith(f"level {level}: busbw is not used: ")
        assert "BUSBW_NET_FAMILY" in line and "8" in line


def test_nothing_else_is_exported(plugin_library: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm (binutils) to list the symbols")
    run = subprocess.run(["nm", "-D", "--defined-only", plugin_library], capture_output=True, text=True, check=True)
    kinds = {line.split()[-1]: line.split()[-2] for line in run.stdout.splitlines()}
    assert {name for name in kinds if not name.startswith("busbw_")} == TABLES
    assert {kinds[name] for name in TABLES} <= set("DR"), "NCCL looks for data, not for functions"
