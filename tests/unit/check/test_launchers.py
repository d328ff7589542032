"""Branches of the checks of launchers: values at the limits, programs, what cannot be read."""

import json

import pytest
from healthy import healthy
from one_check import only, run, set_to
from tree import Tree

from busbw.check.launcher.programs import pmix_listing
from busbw.core.finding import Verdict
from busbw.host.source import Unavailable

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"path": ""}, SKIP),
        ({"path": "/usr/bin/mpirun", "version": "4.1.8"}, PASS),
        ({"path": "/usr/bin/mpirun", "error": "/usr/bin/mpirun is not Open MPI 4 or newer"}, WARN),
    ],
)
def test_mpirun_on_path(answer, verdict):
    assert only("mpirun-version", healthy().call("mpirun", json.dumps(answer))).verdict is verdict


def test_isolation_is_of_one_major_version():
    assert only("mpirun-isolated", set_to(OMPI_MCA_plm="isolated")).verdict is PASS
    assert (
        only(
            "mpirun-isolated", set_to(OMPI_MCA_plm="isolated").update("mpirun", version="4.1.8")
        ).verdict
        is FAIL
    )


@pytest.mark.parametrize(
    "line", ["127.0.1.1 gpu-1.cluster gpu-1", "127.0.0.1 localhost gpu-1 # own", "::1 gpu-1"]
)
def test_own_name_is_loopback(line):
    assert only("hostname-loopback", healthy().file("/etc/hosts", line)).verdict is WARN


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("127.0.1.1 STREAM gpu-1", WARN), ("10.1.0.1 STREAM", PASS), ("fe80::1%eth0 STREAM", PASS)],
)
def test_own_addresses(text, verdict):
    assert only("hostname-resolves", healthy().call("own-addresses", text)).verdict is verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"agent": True, "keys": {}}, PASS),
        ({"keys": {}}, WARN),
        ({"ssh": "", "keys": {}}, SKIP),
        ({"keys": {"id_rsa": 0o640}}, WARN),
    ],
)
def test_keys_of_ssh(values, verdict):
    assert only("ssh-keys", healthy().update("ssh-login", **values)).verdict is verdict


def test_slurm_without_srun():
    assert only("slurm-mpi", healthy().call("srun-mpi", "")).verdict is SKIP


def test_srun_that_fails_lists_no_plugins(tmp_path, monkeypatch):
    srun = tmp_path / "srun"
    srun.write_text(
        "#!/bin/sh\necho 'srun: fatal: Could not establish a configuration source' >&2\nexit 1\n"
    )
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        Unavailable, match=r"srun ended with exit code 1: srun: fatal: Could not establish"
    ):
        pmix_listing()


@pytest.mark.parametrize(
    ("reason", "optional"),
    [
        (
            "srun ended with exit code 1: srun: fatal: Could not establish a configuration source",
            True,
        ),
        ("srun ended with exit code 1: srun: fatal: something else", False),
        ("srun did not finish within 10 s", False),
        ("input/output error", False),
    ],
)
def test_srun_outside_a_cluster_gives_no_verdict_on_the_host(reason, optional):
    finding = only("slurm-mpi", healthy().failing("srun-mpi", reason))
    assert (finding.verdict, finding.optional) == (UNKNOWN, optional)
    assert reason in finding.message


@pytest.mark.parametrize(
    ("variables", "verdict", "message"),
    [
        (
            {"OMPI_MCA_btl_tcp_if_include": "eth0", "PRTE_MCA_prte_if_include": "eth0"},
            PASS,
            "agree",
        ),
        (
            {"OMPI_MCA_btl_tcp_if_include": "eth0"},
            WARN,
            "does not set the interface of the daemons",
        ),
        (
            {"OMPI_MCA_btl_tcp_if_include": "eth0", "OMPI_MCA_oob_tcp_if_include": "eth0"},
            WARN,
            "does not set the interface of the daemons",
        ),  # 5 ignores the variable
        ({"PRTE_MCA_prte_if_exclude": "docker0,lo"}, FAIL, "crashes"),
        (
            {"OMPI_MCA_btl_tcp_if_include": "eth0", "OMPI_MCA_btl_tcp_if_exclude": "lo"},
            FAIL,
            "exclude each other",
        ),
        ({"OMPI_MCA_btl_tcp_if_exclude": "docker0"}, FAIL, "no loopback"),
    ],
)
def test_interfaces_of_open_mpi(variables, verdict, message):
    finding = only("mpi-interfaces", set_to(**variables))
    assert (finding.verdict, message in finding.message) == (verdict, True), finding


def test_variables_of_the_other_open_mpi():
    tree = set_to(PRTE_MCA_prte_if_include="eth0", PMIX_MCA_gds="hash", OMPI_MCA_pml="ob1").update(
        "mpirun", version="4.1.8"
    )
    (finding,) = run("mpi-variables", tree)
    assert finding.fix == "unset PRTE_MCA_prte_if_include; export OMPI_MCA_oob_tcp_if_include=eth0"


@pytest.mark.parametrize(
    ("variables", "verdict"),
    [
        ({"OMPI_MCA_pml": "ucx", "UCX_NET_DEVICES": "eth0"}, PASS),
        ({"OMPI_MCA_pml": "ucx", "UCX_TLS": "tcp,sm,self"}, PASS),
        ({"UCX_NET_DEVICES": "mlx5_0:1"}, WARN),
        ({"OMPI_MCA_coll_hcoll_enable": "1"}, WARN),
        ({"OMPI_MCA_coll": "^hcoll", "OMPI_MCA_pml": "ob1"}, PASS),
    ],
)
def test_transport_of_mpi(variables, verdict):
    assert only("mpi-transport", set_to(**variables)).verdict is verdict


def test_hostfile_without_hosts_and_without_permission():
    variables = {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}
    assert only("mpijob", set_to(**variables).file("/etc/mpi/hostfile", "# none")).verdict is FAIL
    assert (
        only("mpijob", set_to(**variables).error("/etc/mpi/hostfile", "permission denied")).verdict
        is UNKNOWN
    )
    assert (
        only("mpijob", set_to(**variables).file("/etc/mpi/hostfile", "w0 slots=8")).verdict is WARN
    )


def test_machine_without_environment_is_unknown():
    tree = Tree().file("/proc/sys/kernel/hostname", "gpu-1")
    assert only("nccl-algo", tree).verdict is UNKNOWN
