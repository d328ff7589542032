"""busbw finds the library built here and reads the rates of its interfaces."""

from pathlib import Path

import pytest

from busbw.cli import print_env
from busbw.cli.main import main
from busbw.core.errors import Exit
from busbw.core.networks import CHANNEL_VARIABLES
from busbw.core.version import __version__
from busbw.host import net_plugin, nvml


def test_print_env_exports_the_built_library(
    plugin_library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUSBW_PLUGIN", str(plugin_library))
    for name in CHANNEL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvml, "count", lambda: None)
    monkeypatch.setattr(net_plugin, "rate", lambda _: None)
    assert main(["busbw", "run", "--net", "busbw", "--print-env"]) == Exit.OK
    lines = [
        f"NCCL_NET_PLUGIN={plugin_library}",
        "NCCL_NET=busbw",
        "NCCL_NET_PLUGIN_REF_COUNT=1",
        "NCCL_MIN_NCHANNELS=8",
    ]
    printed = capsys.readouterr()
    assert printed.out == "".join(f"export {line}\n" for line in lines)
    assert "this is busbw" not in printed.err, "both have one version"


def test_a_library_of_another_version_is_noted(
    plugin_library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUSBW_PLUGIN", str(plugin_library))
    monkeypatch.setattr(print_env, "__version__", "77.8.9")
    assert main(["busbw", "run", "--net", "busbw", "--print-env"]) == Exit.OK
    assert (
        f"note: {plugin_library} is from busbw-native {__version__}, this is busbw 77.8.9"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("variables", "gbit"),
    [
        ({"NCCL_SOCKET_IFNAME": "lo", "BUSBW_NET_SPEED": "25000"}, 25),
        (
            {
                "NCCL_SOCKET_IFNAME": "nosuch0",
                "BUSBW_NET_IFNAME": "=lo",
                "BUSBW_NET_SPEED": "10000",
            },
            10,
        ),
        ({"NCCL_SOCKET_IFNAME": "lo"}, None),
        ({"NCCL_SOCKET_IFNAME": "nosuch0", "BUSBW_NET_SPEED": "25000"}, None),
        ({"NCCL_SOCKET_IFNAME": "lo", "BUSBW_NET_SPEED": "fast"}, None),
    ],
)
def test_the_built_library_reports_interface_rates(
    plugin_library: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    gbit: int | None,
) -> None:
    monkeypatch.setenv("BUSBW_PLUGIN", str(plugin_library))
    assert net_plugin.rate(variables) == (gbit and gbit * 1e9 / 8)
