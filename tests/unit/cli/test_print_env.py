"""`busbw run --print-env` prints what a shell, a program or a .env file needs, and nothing where the
plugin would not work.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.cli.main import main
from busbw.core.errors import Exit
from busbw.core.networks import CHANNEL_VARIABLES, THREADS_VARIABLE
from busbw.host import net_plugin, nvml

Build = Callable[..., Path]
LIMIT_S = 60
PRINT = ["busbw", "run", "--net", "busbw", "--print-env"]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, library: Build) -> Path:
    path = library(name="it's here/libplugin.so")
    monkeypatch.setenv("BUSBW_PLUGIN", str(path))
    for name in (*CHANNEL_VARIABLES, THREADS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvml, "count", lambda: None)
    return path


@pytest.mark.usefixtures("ranks_are_forks")
def test_the_documented_line_sets_the_variables_of_a_shell(plugin: Path) -> None:
    busbw = f"{sys.executable} -m busbw"
    script = (
        f'eval "$({busbw} run --net busbw --print-env --ifname lo)"; printf "%s|%s|%s" "$NCCL_NET_PLUGIN" "$NCCL_NET"'
        ' "$NCCL_SOCKET_IFNAME"; sh -c env'
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    assert result.stdout.startswith(f"{plugin}|busbw|lo")
    assert f"NCCL_NET_PLUGIN={plugin}\n" in result.stdout, (
        "programs that the shell starts have it too"
    )


def test_json_and_dotenv_hold_the_same(
    plugin: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(net_plugin, "rate", lambda _: None)
    assert main([*PRINT, "json"]) == Exit.OK
    expected = {
        "NCCL_NET_PLUGIN": str(plugin),
        "NCCL_NET": "busbw",
        "NCCL_NET_PLUGIN_REF_COUNT": "1",
        "NCCL_MIN_NCHANNELS": "8",
    }
    assert json.loads(capsys.readouterr().out) == expected
    assert main([*PRINT, "dotenv"]) == Exit.OK
    quoted = str(plugin).replace("'", "'\"'\"'")
    assert (
        capsys.readouterr().out
        == f"NCCL_NET_PLUGIN='{quoted}'\nNCCL_NET=busbw\nNCCL_NET_PLUGIN_REF_COUNT=1\nNCCL_MIN_NCHANNELS=8\n"
    )


@pytest.mark.parametrize(
    ("gpus", "chosen", "sets_threads"),
    [(1, "", True), (1, "512", False), (2, "", False), (None, "", False)],
)
def test_one_gpu_hosts_get_256_threads_unless_set(
    plugin: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gpus: int | None,
    chosen: str,
    sets_threads: bool,
) -> None:
    monkeypatch.setattr(net_plugin, "rate", lambda _: None)
    monkeypatch.setattr(nvml, "count", lambda: gpus)
    monkeypatch.setenv("NCCL_NTHREADS", chosen)
    assert main(PRINT) == Exit.OK
    captured = capsys.readouterr()
    assert ("export NCCL_NTHREADS=256\n" in captured.out) == sets_threads
    alike = "NCCL_MIN_NCHANNELS=8" + (" and NCCL_NTHREADS=256" if sets_threads else "")
    assert f"note: {alike} must be the same on all hosts\n" in captured.err


def test_a_link_that_two_channels_fill_needs_no_more(
    plugin: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(net_plugin, "rate", lambda _: 3.125e9)
    assert main([*PRINT, "dotenv"]) == Exit.OK
    assert "NCHANNELS" not in capsys.readouterr().out


def test_a_network_is_written_as_the_names_it_has_here(
    plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PRINT, "--ifname", "127.0.0.0/8"]) == Exit.OK
    assert "export NCCL_SOCKET_IFNAME==lo\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--ifname", "nosuch0"), Exit.USAGE, "error: --ifname nosuch0: no such interface on"),
        (("--print-env", "fish"), Exit.USAGE, "error: Invalid value for '--print-env'"),
        (("--net", "ib", "--ifname", "nosuch0"), Exit.USAGE, "error: --ifname nosuch0: no such"),
    ],
)
def test_invalid_arguments_print_no_variables(
    plugin: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: Exit,
    message: str,
) -> None:
    assert main([*PRINT, *words]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err.startswith(message)) == ("", True)


def test_a_plugin_that_nccl_could_not_load_prints_no_variables(
    monkeypatch: pytest.MonkeyPatch, library: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUSBW_PLUGIN", str(library("int other;")))
    assert main(PRINT) == Exit.UNKNOWN
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "it has no ncclNetPlugin_v8, ncclNetPlugin_v11\n\nhint: " in captured.err
