"""What NCCL finds in the built library before any traffic, checked by a C program and nm,
without GPU and NCCL.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from abi import NET_TABLES, SYMBOLS, header

SOURCE = Path(__file__).with_name("dlopen.c")
INFO, WARN = 3, 2
INVALID_USAGE = 5


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program, built."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: make test-tools")
    folder = tmp_path_factory.mktemp("dlopen")
    program = folder / "dlopen"
    (folder / "versions.h").write_text(header())
    subprocess.run(
        [
            *shlex.split("gcc -std=c11 -Wall -Wextra -Werror -I"),
            folder,
            "-o",
            program,
            SOURCE,
            "-ldl",
        ],
        check=True,
    )
    return program


def load(loader: Path, library: Path, mode: str, **env: str) -> str:
    """The output of the program, with no other settings of NCCL or the plugin."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL_", "BUSBW_"))
    }
    run = subprocess.run(
        [loader, library, mode], capture_output=True, text=True, timeout=60, env=clean | env
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_c_finds_all_tables_and_the_library_stays_loaded(
    loader: Path, plugin_library: Path
) -> None:
    assert load(loader, plugin_library, "tables").startswith(
        "ncclNetPlugin_v8: 19 entries\nncclNetPlugin_v11: 22 entries\n"
    )


def test_every_property_of_every_device_is_set(loader: Path, plugin_library: Path) -> None:
    assert load(loader, plugin_library, "devices").endswith(" devices\n")


@pytest.mark.parametrize(
    ("env", "level"), [({"NCCL_NET": "BusBW"}, WARN), ({"NCCL_NET": "Socket"}, INFO), ({}, INFO)]
)
def test_a_bad_setting_warns_only_if_busbw_was_requested(
    loader: Path, plugin_library: Path, env: dict[str, str], level: int
) -> None:
    lines = load(loader, plugin_library, "init", BUSBW_NET_FAMILY="8", **env).splitlines()
    assert lines[1::2] == [f"{row.symbol}: {INVALID_USAGE}" for row in NET_TABLES.values()]
    for line in lines[::2]:
        assert line.startswith(f"level {level}: busbw is not used: ")
        assert "BUSBW_NET_FAMILY" in line and "8" in line


def test_only_the_plugin_tables_are_exported(plugin_library: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm (binutils): make test-tools")
    run = subprocess.run(
        ["nm", "-D", "--defined-only", plugin_library], capture_output=True, text=True, check=True
    )
    kinds = {line.split()[-1]: line.split()[-2] for line in run.stdout.splitlines()}
    assert {name for name in kinds if not name.startswith("busbw_")} == SYMBOLS
    assert {kinds[name] for name in SYMBOLS} <= set("DR"), "NCCL looks for data, not for functions"
