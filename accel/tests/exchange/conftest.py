"""Makes the modules in this folder importable by name, since tests are imported by path;
fixtures of updates on the CPU, and of host staging.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tests" / "ranks")]


@pytest.fixture(params=["native", "torch"])
def updates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The library that computes the updates."""
    from busbw_accel import host_adam

    host_adam._library.cache_clear()
    if request.param == "native":
        monkeypatch.setenv("BUSBW_PLUGIN", str(request.getfixturevalue("plugin_library")))
    else:
        monkeypatch.setattr(host_adam, "_library", lambda: None)
    yield request.param
    if request.param == "native":
        host_adam._library.cache_clear()


@pytest.fixture
def staging_env(plugin_library: Path) -> dict[str, str]:
    """The library, and loopback, which is left out where nobody asks for it."""
    return {
        "BUSBW_PLUGIN": str(plugin_library),
        "BUSBW_NET_IFNAME": "=lo",
        "BUSBW_NET_THREADS": "1",
    }
