"""The command lines for Open MPI 4 and 5, and which mpirun is accepted."""

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.launch import hosts, interfaces, mpirun
from busbw.launch.hosts import LaunchHost

FOUR = mpirun.Mpirun("/usr/bin/mpirun", 4, "4.1.6")
FIVE = mpirun.Mpirun("/opt/bin/mpirun", 5, "5.0.11")
HOSTS = (LaunchHost("h1", 8), LaunchHost("h2", 8))


@pytest.fixture(autouse=True)
def one_machine(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(
        interfaces,
        "local",
        lambda: {"eth0": IPv4Interface("10.1.0.5/16"), "eth1": IPv4Interface("10.2.0.5/16")},
    )
    for name in [name for name in os.environ if name.startswith(("OMPI_", "PRTE_"))]:
        monkeypatch.delenv(name)


def built(*args, **kwargs) -> str:
    return shlex.join(mpirun.command(*args, **kwargs))


def test_local_ranks_keep_mpis_own_transports():
    assert (
        built(FIVE, ["rank", "a b"], 1)
        == "/opt/bin/mpirun -n 1 --bind-to none --mca mpi_abort_delay 1 --mca pml ob1 --mca btl"
        " sm,self rank 'a b'"
    )


def test_oversubscription_options_of_each_version():
    assert (
        built(FIVE, ["rank"], 2)
        == "/opt/bin/mpirun -n 2 --bind-to none --mca mpi_abort_delay 1 --mca pml ob1 --mca btl"
        " sm,self --map-by :OVERSUBSCRIBE rank"
    )
    assert (
        built(FOUR, ["rank"], 2)
        == "/usr/bin/mpirun -n 2 --bind-to none --mca mpi_abort_delay 1 --mca pml ob1 --mca btl"
        " vader,self --oversubscribe rank"
    )


def test_open_mpi_4_needs_no_ssh_on_one_machine(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert "--mca plm isolated" in built(FOUR, ["rank"], 1)
    assert "plm" not in built(FIVE, ["rank"], 1)
    monkeypatch.setattr(shutil, "which", {"rsh": "/usr/bin/rsh"}.get)
    assert "plm" not in built(FOUR, ["rank"], 1)


def test_root_is_allowed_only_when_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--allow-run-as-root" in mpirun.command(FIVE, ["rank"], 1)


def test_hosts_and_interface_on_open_mpi_5():
    assert (
        built(FIVE, ["rank"], 16, HOSTS, "10.1.0.0/16", {"A": "x=1 y"})
        == "/opt/bin/mpirun -n 16 --bind-to none --mca mpi_abort_delay 1 --host h1:8,h2:8 --mca pml"
        " ob1 --mca btl tcp,self --mca coll '^hcoll' --mca btl_tcp_if_include 10.1.0.0/16"
        " --prtemca prte_if_include 10.1.0.0/16 --pmixmca ptl_tcp_if_include 10.1.0.0/16"
        " --prtemca plm_ssh_no_tree_spawn 1 --prtemca oob_tcp_keepalive_time 10 --prtemca"
        " oob_tcp_keepalive_intvl 5 --prtemca oob_tcp_keepalive_probes 3 --prtemca plm_ssh_args"
        " '-o BatchMode=yes -o ConnectTimeout=10' -x 'A=x=1 y' -x BUSBW_IFNAME=10.1.0.0/16 rank"
    )


def test_users_of_hosts_go_to_ssh_where_open_mpi_would_confuse_addresses(monkeypatch):
    monkeypatch.delenv("PRTE_MCA_plm_ssh_agent", raising=False)
    monkeypatch.delenv("OMPI_MCA_plm_rsh_agent", raising=False)

    def line(*names: str) -> str:
        named = [LaunchHost(name, 1) for name in names]
        return " ".join(mpirun.command(FIVE, ["rank"], len(named), named))

    same = line("ann@10.0.0.1", "ann@10.0.0.2")
    assert "--host 10.0.0.1:1,10.0.0.2:1 " in same
    assert "--prtemca plm_ssh_args -l ann -o BatchMode=yes" in same
    assert "--host h1:1,ann@10.0.0.2:1 " in line("h1", "ann@10.0.0.2")
    with pytest.raises(UsageError, match=r"ann@10\.0\.0\.1, bob@10\.0\.0\.2: Open MPI confuses"):
        line("ann@10.0.0.1", "bob@10.0.0.2")


def test_hosts_and_interface_on_open_mpi_4():
    assert (
        built(FOUR, ["rank"], 16, HOSTS, "eth")
        == "/usr/bin/mpirun -n 16 --bind-to none --mca mpi_abort_delay 1 --host h1:8,h2:8 --mca pml"
        " ob1 --mca btl tcp,self --mca coll '^hcoll' --mca btl_tcp_if_include eth0,eth1 --mca"
        " oob_tcp_if_include eth0,eth1 --mca plm_rsh_no_tree_spawn 1 --mca"
        " oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5 --mca"
        " oob_tcp_keepalive_probes 3 --mca plm_rsh_args '-o BatchMode=yes -o ConnectTimeout=10'"
        " -x BUSBW_IFNAME=eth -x NCCL_SOCKET_IFNAME=eth rank"
    )


def test_daemons_of_open_mpi_5_get_one_interface():
    line = built(FIVE, ["rank"], 16, HOSTS, "eth")
    assert (
        "--mca btl_tcp_if_include eth0,eth1 --prtemca prte_if_include eth0 --pmixmca"
        " ptl_tcp_if_include eth0 " in line
    )


@pytest.mark.parametrize(("installed", "name"), [(FIVE, "PRTE_MCA_plm"), (FOUR, "OMPI_MCA_plm")])
def test_plm_isolated_is_refused_for_several_hosts(monkeypatch, installed, name):
    monkeypatch.setenv(name, "isolated")
    with pytest.raises(
        UsageError,
        match=(
            f"^{name}=isolated keeps Open MPI {installed.version} from starting ranks on other"
            " hosts"
        ),
    ):
        mpirun.command(installed, ["rank"], 16, HOSTS)
    assert "--host" not in mpirun.command(installed, ["rank"], 2), "allowed on this machine"


def test_user_ssh_options_are_kept_and_only_for_ssh():
    assert (
        mpirun.ssh_args({"OMPI_MCA_plm_rsh_args": "-p 22222"})
        == "-p 22222 -o BatchMode=yes -o ConnectTimeout=10"
    )
    assert mpirun.ssh_args({"PRTE_MCA_plm_ssh_agent": "/etc/mpi/kubexec.sh"}) == ""
    assert mpirun.launch_agent({"OMPI_MCA_plm_rsh_agent": "ssh -q : rsh"}) == "ssh -q"
    assert (
        mpirun.ssh_args({"OMPI_MCA_plm_rsh_agent": "ssh : rsh"})
        == "-o BatchMode=yes -o ConnectTimeout=10"
    )
    assert (
        mpirun.ssh_args({"OMPI_MCA_plm_rsh_agent": "/usr/bin/ssh -q"})
        == "-o BatchMode=yes -o ConnectTimeout=10"
    )


def test_a_secret_is_not_on_the_command_line(monkeypatch):
    monkeypatch.setenv("NCCL_AUTH_TOKEN", "s3cret")
    line = mpirun.command(
        FIVE, ["rank"], 2, HOSTS, env={"NCCL_AUTH_TOKEN": "s3cret", "NCCL_DEBUG": "INFO"}
    )
    assert (
        "s3cret" not in " ".join(line)
        and line[line.index("NCCL_AUTH_TOKEN") - 1] == "-x"
        and "NCCL_DEBUG=INFO" in line
    )


def test_an_invalid_variable_name_is_refused():
    with pytest.raises(UsageError, match="'A B' is not the name"):
        mpirun.command(FIVE, ["rank"], 1, env={"A B": "1"})


def script(folder: Path, text: str) -> str:
    path = folder / "mpirun"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("version_text", "major", "version"),
    [
        ("mpirun (Open MPI) 4.1.6", 4, "4.1.6"),
        ("mpirun (Open MPI) 5.0.11rc1", 5, "5.0.11"),
        ("mpirun (Open MPI) 4.1.7a1", 4, "4.1.7"),
    ],
)
def test_the_version_is_read(tmp_path, version_text, major, version):
    path = script(tmp_path, f"echo '{version_text}'")
    assert mpirun.find([str(tmp_path / "absent"), path]) == mpirun.Mpirun(path, major, version)


@pytest.mark.parametrize(
    "version_text",
    [
        "HYDRA build details:",
        "Intel(R) MPI Library for Linux* OS, Version 2021.9",
        "mpirun (Open MPI) 3.1.3",
        "",
    ],
)
def test_another_mpi_is_refused_by_its_version_text(tmp_path, version_text):
    with pytest.raises(NoMeasurement, match="is not Open MPI 4 or newer") as caught:
        mpirun.find([script(tmp_path, f"echo '{version_text}'")])
    assert version_text in caught.value.message
    assert "busbw[mpi]" in caught.value.hint


def test_a_hanging_or_missing_mpirun_is_refused(tmp_path, monkeypatch):
    with pytest.raises(NoMeasurement, match="no mpirun"):
        mpirun.find([str(tmp_path / "absent")])
    monkeypatch.setattr(mpirun, "VERSION_LIMIT_S", 0.2)
    with pytest.raises(NoMeasurement, match=r"did not finish within 0\.2 s"):
        mpirun.find([script(tmp_path, "exec sleep 30")])
    Path(script(tmp_path, "")).write_text("#!/no/such/interpreter\n")
    with pytest.raises(NoMeasurement, match="cannot be run: No such file"):
        mpirun.find([str(tmp_path / "mpirun")])


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_torchrun_command_line():
    assert hosts.command(["rank"], 4) == [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=4",
        "--no-python",
        "rank",
    ]
