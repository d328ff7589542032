"""Hosts and jobs for the tests of the plugin.

Skips, with the reason, if this machine cannot emulate hosts.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netlab
import peers
import pytest
import rails
from abi import NET_TABLES

DRIVER = Path(__file__).with_name("fake_libcuda.c")
Job = Callable[..., tuple[peers.Peer, peers.Peer]]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the driver, built."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: make test-tools")
    folder = tmp_path_factory.mktemp("driver")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", folder / "libcuda.so.1", DRIVER], check=True)
    return folder


def _rails(count: int, family: str) -> Iterator[rails.Rails]:
    try:
        with rails.rails(count, family) as emulated:
            yield emulated
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated hosts: {error}")


@pytest.fixture(scope="session")
def rail() -> Iterator[rails.Rails]:
    """Two hosts with one NIC each and IPv4, for tests that break nothing."""
    yield from _rails(1, rails.IPV4)


@pytest.fixture(scope="session")
def rail6() -> Iterator[rails.Rails]:
    """The same with IPv6 only."""
    yield from _rails(1, rails.IPV6)


@pytest.fixture(params=[rails.IPV4, rails.IPV6])
def family(request: pytest.FixtureRequest) -> rails.Rails:
    """IPv4, then IPv6."""
    requested: rails.Rails = request.getfixturevalue(
        "rail" if request.param == rails.IPV4 else "rail6"
    )
    return requested


@pytest.fixture
def own_rails() -> Iterator[Callable[..., rails.Rails]]:
    """Creates hosts that one test may break."""
    with contextlib.ExitStack() as undo:

        def make(count: int, family: str = rails.IPV4) -> rails.Rails:
            try:
                return undo.enter_context(rails.rails(count, family))
            except netlab.Unavailable as error:
                pytest.skip(f"no emulated hosts: {error}")

        yield make


@pytest.fixture(params=NET_TABLES, ids="v{}".format)
def version(request: pytest.FixtureRequest) -> int:
    """The version of the table under test."""
    value: int = request.param
    return value


@pytest.fixture
def job(plugin_library: Path, own_rails: object) -> Iterator[Job]:
    """Starts an initialized process on each of two hosts.

    Those that are alive at the end must exit with status 0.

    Hosts that belong to one test (own_rails) are removed after their processes.
    """
    started: list[peers.Peer] = []

    def start(
        emulated: rails.Rails, version: int = 11, **variables: Any
    ) -> tuple[peers.Peer, peers.Peer]:
        a, b = (
            peers.Peer(plugin_library, version, host.inside, host.addresses[0], **variables)
            for host in emulated.hosts
        )
        started.extend((a, b))
        for peer in (a, b):
            peer.call("init")
        return a, b

    yield start
    alive = [peer for peer in started if peer.process.poll() is None]
    ends = [peer.stop() for peer in alive]
    for peer in started:
        peer.stop()
    assert ends == [0] * len(alive), (ends, [peer.wrote for peer in alive])


@pytest.fixture
def lone(plugin_library: Path, rail: rails.Rails) -> Iterator[Callable[..., peers.Peer]]:
    """Starts one process without init."""
    started: list[peers.Peer] = []

    def start(version: int = 11, **variables: str) -> peers.Peer:
        started.append(
            peers.Peer(
                plugin_library,
                version,
                rail.hosts[0].inside,
                rail.hosts[0].addresses[0],
                **variables,
            )
        )
        return started[-1]

    yield start
    assert [peer.stop() for peer in started] == [0] * len(started), [peer.wrote for peer in started]
