"""`busbw env net` finds nothing wrong with the library that is built here."""

from pathlib import Path

import pytest

from busbw.cli.main import main
from busbw.core.exits import Exit


def test_the_built_library_passes(plugin_library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BUSBW_PLUGIN", str(plugin_library))
    assert main(["busbw", "env", "net"]) == Exit.OK
    assert (
        capsys.readouterr().out == f"export NCCL_NET_PLUGIN={plugin_library}\nexport NCCL_NET=busbw\nexport NCCL_NET_PLUGIN_REF_COUNT=1\n"
    )
