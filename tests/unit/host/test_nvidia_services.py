"""Output of the driver's companion programs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rack import IMEX

from busbw.host import nvidia_services
from busbw.host.nvidia_services import (
    FABRIC_MANAGER,
    fabric_manager,
    imex_domain,
    imex_nodes,
    states,
    version,
)
from busbw.host.source import Unavailable


def test_states_of_units() -> None:
    text = f"Id={FABRIC_MANAGER}\nLoadState=loaded\nActiveState=failed\n\nId=nvidia-imex.service\nLoadState=not-found\nActiveState=inactive\n"
    assert states(text) == {FABRIC_MANAGER: "failed", "nvidia-imex.service": "not installed"}


@pytest.mark.parametrize(
    ("text", "version_read"),
    [("\n\tFabric Manager version is : 535.161.08\n\n", "535.161.08"), ("version 5", ""), ("", "")],
)
def test_version_of_the_fabric_manager(text: str, version_read: str) -> None:
    assert version(text) == version_read


def test_nodes_and_domain_of_imex() -> None:
    assert (imex_nodes(IMEX), imex_domain(IMEX)) == (
        {"10.0.0.1": "READY", "10.0.0.2": "READY"},
        "UP",
    )
    older = (
        "Nodes:\n"
        "Node #0   - 10.136.206.48   - READY\n\n"
        " Nodes From\\To  0\n"
        "       0        C\n"
        "Domain State: DOWN"
    )
    assert (imex_nodes(older), imex_domain(older)) == ({"10.136.206.48": "READY"}, "DOWN")


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    for read in (states, imex_nodes, imex_domain, version):
        read(text)


def tool(folder: Path, script: str, name: str = "nv-fabricmanager") -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_command_that_fails_gives_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "echo one >&2; echo two >&2; exit 3")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(Unavailable, match="nv-fabricmanager ended with exit code 3: two"):
        fabric_manager()


def test_the_output_of_commands_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nv-fabricmanager", "systemctl", "nvidia-imex-ctl"):
        tool(tmp_path, 'echo "${0##*/} $*"', name)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert fabric_manager() == "nv-fabricmanager --version\n"
    assert nvidia_services.imex() == "nvidia-imex-ctl -N\n"
    units = "nvidia-fabricmanager.service nvidia-imex.service"
    assert (
        nvidia_services.services()
        == f"systemctl show --property=Id,LoadState,ActiveState {units}\n"
    )


def test_a_command_that_cannot_be_run_gives_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nv-fabricmanager").write_text("neither a program nor a script")
    (tmp_path / "nv-fabricmanager").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="nv-fabricmanager: exec format error"):
        fabric_manager()


def test_a_command_that_is_absent_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="nv-fabricmanager is not installed"):
        fabric_manager()


def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "exec sleep 60")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(nvidia_services, "_LIMIT_S", 0.1)
    with pytest.raises(Unavailable, match="no answer"):
        fabric_manager()
