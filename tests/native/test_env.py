"""`busbw env net` finds nothing wrong with the library that is built here."""

from pathlib import Path

import pytest

from busbw.cli.main import main
from busbw.core.exits import Exit
from busbw.core.networks import CHANNEL_VARIABLES
from busbw.host import nvml
from busbw.launch import interfaces


def test_the_built_library_passes(plugin_library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BUSBW_PLUGIN", str(plugin_library))
    for name in CHANNEL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvml, "count", lambda: None)
    monkeypatch.setattr(interfaces, "plugin_rate", lambda _: None)
    assert main(["busbw", "env", "net"]) == Exit.OK
    lines = [f"NCCL_NET_PLUGIN={plugin_library}", "NCCL_NET=busbw", "NCCL_NET_PLUGIN_REF_COUNT=1", "NCCL_MIN_NCHANNELS=8"]
    assert capsys.readouterr().out == "".join(f"export {line}\n" for line in lines)
