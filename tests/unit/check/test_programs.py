"""Queries of the programs that launchers use: mpirun, srun, getent and ssh."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from busbw.check.facts import facts
from busbw.check.launcher import programs
from busbw.check.machine import Machine
from busbw.host.source import LiveMachine, Unavailable
from busbw.launch import mpirun

Programs = Callable[..., None]


@pytest.fixture
def install_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """`install_programs(name="lines of sh")`: only these programs are in PATH."""

    def make(**scripts: str) -> None:
        for name, text in scripts.items():
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            path.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setattr(mpirun.sys, "executable", str(tmp_path / "venv" / "python"))

    return make


def test_without_the_programs(install_programs):
    install_programs()
    assert (read_here(programs.open_mpi), programs.pmix_listing()) == (programs.OpenMpi(""), "")
    with pytest.raises(Unavailable, match="getent is not installed"):
        programs.own_addresses("gpu-1")


def test_addresses_of_a_name_as_getent_prints_them(install_programs):
    install_programs(getent='[ "$1 $2" = "ahosts gpu-1" ] && echo "10.1.0.1 STREAM gpu-1"; exit 2')
    assert (programs.own_addresses("gpu-1"), programs.own_addresses("gpu-2")) == (
        "10.1.0.1 STREAM gpu-1",
        "",
    )


def test_plugins_as_srun_lists_them(install_programs):
    install_programs(srun='echo "MPI plugin types are..."; echo pmix >&2')
    assert programs.pmix_listing() == "MPI plugin types are...\npmix"
    install_programs(srun="echo first; echo last >&2; exit 7")
    with pytest.raises(Unavailable, match=r"srun ended with exit code 7: last$"):
        programs.pmix_listing()


def test_a_program_that_cannot_be_run(install_programs, tmp_path):
    install_programs(srun="")
    (tmp_path / "bin" / "srun").write_bytes(b"\x7fELF")
    with pytest.raises(Unavailable, match=r"srun cannot be run: Exec format error"):
        programs.pmix_listing()


def test_the_slowest_of_three_lookups_of_each_own_address(install_programs, monkeypatch, tmp_path):
    """A clock that stands still but for the second lookup of each address."""
    install_programs(
        getent=(
            f'echo "$@" >> {tmp_path}/asked; [ "$1" = ahosts ] && echo "10.1.0.1 STREAM" && echo'
            ' "fe80::1 STREAM"'
        )
    )
    times = iter([0.0, 0.25, 1.0, 1.75, 2.0, 2.125] * 2)
    monkeypatch.setattr(programs, "time", SimpleNamespace(monotonic=lambda: next(times)))
    assert json.loads(programs.reverse_lookups("gpu-1")) == {
        "::ffff:10.1.0.1": 0.75,
        "::ffff:127.0.0.1": 0.75,
    }
    queries = (tmp_path / "asked").read_text().splitlines()
    assert queries == [
        "ahosts gpu-1",
        *["hosts ::ffff:10.1.0.1"] * 3,
        *["hosts ::ffff:127.0.0.1"] * 3,
    ]


def test_private_keys_and_their_permissions(install_programs, monkeypatch, tmp_path):
    install_programs(ssh="")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", "")
    (tmp_path / ".ssh").mkdir()
    for name, mode in (
        ("id_rsa", 0o644),
        ("id_ed25519", 0o600),
        ("id_rsa.pub", 0o644),
        ("known_hosts", 0o600),
    ):
        (tmp_path / ".ssh" / name).touch()
        (tmp_path / ".ssh" / name).chmod(mode)
    login = json.loads(programs.ssh_login())
    assert login == {
        "ssh": str(tmp_path / "bin" / "ssh"),
        "agent": False,
        "keys": {"id_rsa": 0o644, "id_ed25519": 0o600},
    }
    monkeypatch.setenv("SSH_AUTH_SOCK", os.devnull)
    assert json.loads(programs.ssh_login())["agent"]


def test_mpirun_of_another_kind_is_named(install_programs, tmp_path):
    install_programs(mpirun='echo "HYDRA build details:"')
    mpi = read_here(programs.open_mpi)
    assert mpi.path == str(tmp_path / "bin" / "mpirun") and not mpi.version and mpi.error
    install_programs(mpirun='echo "mpirun (Open MPI) 5.0.8"')
    assert read_here(programs.open_mpi) == programs.OpenMpi(
        str(tmp_path / "bin" / "mpirun"), "5.0.8"
    )


@pytest.mark.parametrize("on_path", [True, False], ids=["activated", "called by its path"])
def test_the_mpirun_of_a_virtual_environment_is_found_as_the_launcher_finds_it(
    install_programs, tmp_path, monkeypatch, on_path
):
    """A host of --hosts has it beside busbw's Python, and on the PATH of a shell only after
    `activate`.
    """
    install_programs(mpirun='echo "mpirun (Open MPI) 4.1.6"')
    venv_mpirun = tmp_path / "venv" / "mpirun"
    venv_mpirun.parent.mkdir()
    venv_mpirun.write_text('#!/bin/sh\necho "mpirun (Open MPI) 5.0.11"\n')
    venv_mpirun.chmod(0o755)
    if on_path:
        monkeypatch.setenv("PATH", f"{venv_mpirun.parent}:{tmp_path / 'bin'}")
    assert (
        read_here(programs.open_mpi)
        == programs.OpenMpi(str(venv_mpirun), "5.0.11")
        == programs.OpenMpi(*mpirun_of_the_launcher())
    )
    assert read_here(facts)["mpirun"] == "5.0.11"
    assert read_here(programs.shell_open_mpi).version == ("5.0.11" if on_path else "4.1.6")


def mpirun_of_the_launcher() -> tuple[str, str]:
    mpi = mpirun.find()
    return mpi.path, mpi.version


def read_here(read):
    """The value read on this machine."""
    return read(Machine(LiveMachine()))
