"""Branches of the checks of NCCL: values at the limits, files, what cannot be read."""

import json

import pytest
from healthy import healthy
from healthy_gpu import all_changed
from healthy_nccl import HOME, MISSING, library
from one_check import changed, only, run, set_to
from tree import Tree, environment

from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


@pytest.mark.parametrize(
    ("value", "right"),
    [("^m1x5_0", "^mlx5_0"), ("=mxl5_0:1,mlx5_1", "=mlx5_0:1,mlx5_1"), ("mlx4_0,mlx5_bond_0", "")],
)
def test_names_that_are_nearly_those_of_mlx5(value, right):
    tree = changed(environment(NCCL_IB_HCA=value), Tree().call("environment", "{}"))
    finding = only("nccl-ib-hca", tree)
    assert (finding.verdict is WARN) == bool(right)
    assert right in finding.fix


@pytest.mark.parametrize(
    ("subsystems", "verdict"),
    [("INIT,NET", PASS), ("init,coll", WARN), ("ALL", WARN), ("^INIT", WARN), ("^ALL", PASS)],
)
def test_subsystems_that_print_a_line_for_each_operation(subsystems, verdict):
    tree = set_to(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS=subsystems)
    found = {finding.subject: finding.verdict for finding in run("nccl-debug", tree)}
    assert found == {"NCCL_DEBUG": PASS, "NCCL_DEBUG_SUBSYS": verdict}
    into_files = set_to(
        NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS=subsystems, NCCL_DEBUG_FILE="nccl.%h.%p"
    )
    assert {finding.verdict for finding in run("nccl-debug", into_files)} == {PASS}


@pytest.mark.parametrize(
    ("name", "variables", "verdict", "message"),
    [
        ("nccl-ib-hca", {"NCCL_IB_HCA": "mlx5_1"}, WARN, "mlx5_1 also selects mlx5_10"),
        ("nccl-ib-hca", {"NCCL_IB_HCA": "=mlx5_1"}, PASS, "selects mlx5_1"),
        ("nccl-ib-hca", {"NCCL_IB_HCA": "^=mlx5_1"}, PASS, "selects mlx5_0, mlx5_10"),
        ("nccl-ib-hca", {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_2:1"}, PASS, "selects mlx5_0, mlx5_2"),
        ("nccl-ib-hca", {"NCCL_IB_HCA": "=mlx5_0,mlx5_77"}, WARN, "has no mlx5_77"),
        ("nccl-ib-hca", {"NCCL_IB_HCA": "hfi1"}, WARN, "selects none of the RDMA devices"),
        ("nccl-ib-disable", {"NCCL_IB_DISABLE": "0"}, PASS, "the default"),
        ("nccl-net-gdr-level", {"NCCL_NET_GDR_LEVEL": "9"}, WARN, "it means SYS"),
        ("nccl-net-gdr-level", {"NCCL_NET_GDR_LEVEL": "LOC"}, WARN, "disables GPUDirect RDMA"),
        ("nccl-net-gdr-level", {"NCCL_NET_GDR_LEVEL": "0"}, WARN, "disables GPUDirect RDMA"),
        ("nccl-net-gdr-level", {"NCCL_NET_GDR_LEVEL": "PXB"}, PASS, "up to this distance"),
        # NCCL compares case
        ("nccl-net-gdr-level", {"NCCL_NET_GDR_LEVEL": "pxb"}, WARN, "has no effect"),
        ("nccl-p2p-disable", {"NCCL_P2P_LEVEL": "nvl"}, WARN, "has no effect"),
        (
            "nccl-socket-ifname",
            {"NCCL_SOCKET_IFNAME": ",".join(f"eth{port}" for port in (1, *range(10, 20)))},
            PASS,
            "selects eth1",
        ),
        *(
            ("nccl-tuning", marker | {"NCCL_BUFFSIZE": "8388608"}, PASS, f"a setting of {plugin}'s")
            for plugin, marker in (
                ("Google", {"NCCL_FASTRAK_CTRL_DEV": "eth0"}),
                ("Google", {"NCCL_LIB_DIR": "/usr/local/tcpx/lib64"}),
                ("AWS", {"LD_LIBRARY_PATH": "/opt/amazon/efa/lib:/opt/nccl/lib"}),
            )
        ),
        (
            "nccl-algo",
            {"NCCL_GPUDIRECTTCPX_FORCE_ACK": "0", "NCCL_ALGO": "Ring"},
            PASS,
            "a setting of Google's",
        ),
        (
            "nccl-algo",
            {"NCCL_GPUDIRECTTCPX_FORCE_ACK": "0", "NCCL_ALGO": "Rong"},
            FAIL,
            "no algorithm RONG",
        ),
        (
            "nccl-tuning",
            {"NCCL_FASTRAK_CTRL_DEV": "eth0", "NCCL_NTHREADS": "256"},
            WARN,
            "changes performance",
        ),
        ("nccl-names", {"NCCL_DYNAMIC_CHUNK_SIZE": "1"}, WARN, "no version of NCCL"),
        (
            "nccl-names",
            {"NCCL_FASTRAK_CTRL_DEV": "eth0", "NCCL_DYNAMIC_CHUNK_SIZE": "1"},
            PASS,
            "all known",
        ),
        # of Google Cloud's plugin
        (
            "nccl-names",
            {"NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE": "/x"},
            PASS,
            "no NCCL variable",
        ),
        ("nccl-net-gdr-level", {"NCCL_NET_GDR_LEVEL": "FAR"}, WARN, "not an NCCL path type"),
        ("nccl-net-gdr-level", {"NCCL_IB_GDR_LEVEL": "PXB"}, WARN, "renamed"),
        ("nccl-socket-ifname", {"NCCL_SOCKET_IFNAME": "eth1"}, WARN, "eth1 also selects eth10"),
        ("nccl-socket-ifname", {"NCCL_SOCKET_IFNAME": "eno"}, PASS, "selects eno1"),
        ("nccl-socket-ifname", {"NCCL_SOCKET_IFNAME": "bond7"}, FAIL, "selects no interface"),
        ("nccl-proto", {"NCCL_PROTO": "allreduce:LL128,Simple"}, WARN, "can corrupt data"),
        ("nccl-proto", {"NCCL_PROTO": "^LL128"}, WARN, "overrides NCCL"),
        ("nccl-algo", {"NCCL_ALGO": "allreduce:tree;broadcast:ring"}, WARN, "overrides NCCL"),
        ("nccl-algo", {"NCCL_ALGO": "^nvls,rign"}, FAIL, "no algorithm RIGN"),
        ("nccl-ib-timeout", {"NCCL_IB_TIMEOUT": "20"}, PASS, "30 s"),
        ("nccl-ib-timeout", {"NCCL_IB_TIMEOUT": "19"}, WARN, "the default of NCCL 2.27.7 is 20"),
        ("nccl-ib-timeout", {"NCCL_IB_TIMEOUT": "31"}, PASS, "gives up"),
        ("nccl-ib-timeout", {"NCCL_IB_TIMEOUT": "32"}, WARN, "never reported"),
        ("nccl-ib-timeout", {"NCCL_IB_TIMEOUT": "0"}, WARN, "never reported"),
        ("nccl-ib-tc", {"NCCL_IB_TC": "256"}, WARN, "not a traffic class"),
        (
            "nccl-socket-threads",
            {"NCCL_SOCKET_NTHREADS": "8", "NCCL_NSOCKS_PERTHREAD": "8"},
            PASS,
            "no effect",
        ),
        ("nccl-socket-threads", {"NCCL_SOCKET_NTHREADS": "17"}, WARN, "17 threads"),
        (
            "nccl-socket-threads",
            {"NCCL_SOCKET_NTHREADS": "4", "NCCL_IB_DISABLE": "1"},
            PASS,
            "4 sockets",
        ),
        ("nccl-ib-qps", {"NCCL_IB_QPS_PER_CONNECTION": "128"}, PASS, "128"),
        ("nccl-ib-qps", {"NCCL_IB_QPS_PER_CONNECTION": "129"}, WARN, "1 to 128"),
        ("nccl-ib-qps", {"NCCL_IB_QPS_PER_CONNECTION": "0"}, WARN, "1 to 128"),
        ("nccl-ib-ece", {"NCCL_IB_ECE_ENABLE": "1"}, PASS, "default"),
        ("nccl-p2p-disable", {"NCCL_P2P_DISABLE": "true"}, PASS, "default"),
        ("nccl-p2p-disable", {"NCCL_P2P_LEVEL": "LOC"}, WARN, "through its memory"),
        ("nccl-p2p-disable", {"NCCL_P2P_LEVEL": "NVL"}, PASS, "sets the distance"),
        ("nccl-shm-disable", {"NCCL_SHM_DISABLE": "0"}, PASS, "default"),
        ("nccl-nvls", {"NCCL_NVLS_ENABLE": "2"}, PASS, "on"),
        ("nccl-cross-nic", {"NCCL_CROSS_NIC": "0"}, PASS, "stays on one rail"),
        ("nccl-cross-nic", {"NCCL_CROSS_NIC": "3"}, WARN, "not a value that NCCL knows"),
        ("nccl-tuning", {"NCCL_BUFFSIZE": "4194304"}, PASS, "default"),
        ("nccl-debug", {"NCCL_DEBUG": "debug"}, WARN, "not a level that NCCL knows"),
        ("nccl-debug", {"CUDA_LAUNCH_BLOCKING": "1"}, WARN, "nothing overlaps"),
        ("nccl-debug", {"CUDA_LAUNCH_BLOCKING": "0"}, PASS, "default"),
        ("nccl-debug", {"NCCL_DEBUG": "warn"}, PASS, "NCCL_DEBUG=warn"),
        ("nccl-debug", {"NCCL_DEBUG": "INFO"}, PASS, "NCCL_DEBUG=INFO"),
        ("nccl-debug", {"NCCL_DEBUG": "Trace"}, WARN, "a line for each operation"),
        ("nccl-debug", {"NCCL_DEBUG_SUBSYS": "ALL"}, PASS, "NCCL_DEBUG_SUBSYS=ALL"),
        ("nccl-debug", {"NCCL_DEBUG_FILE": "/tmp/nccl.%h.%p"}, PASS, "own file"),
        ("nccl-debug", {"NCCL_DEBUG_FILE": "/tmp/nccl.%h"}, WARN, "overwrite"),
        ("cuda-visible-devices", {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, PASS, "all 8"),
        ("cuda-visible-devices", {"CUDA_VISIBLE_DEVICES": "0,8,1"}, WARN, "GPU 8 does not exist"),
        ("cuda-visible-devices", {"CUDA_VISIBLE_DEVICES": ""}, WARN, "all GPUs are hidden"),
        ("cuda-visible-devices", {"CUDA_VISIBLE_DEVICES": "-1"}, WARN, "GPU -1 does not exist"),
        ("cuda-visible-devices", {"CUDA_VISIBLE_DEVICES": "0,0,1,2,3,4,5,6"}, WARN, "twice"),
        ("nccl-collnet", {"NCCL_COLLNET_ENABLE": "0"}, PASS, "default"),
        (
            "nccl-collnet",
            {"NCCL_COLLNET_ENABLE": "1", "NCCL_NET_PLUGIN": "none"},
            WARN,
            "disables the plugin",
        ),
        ("gloo-socket-ifname", {"GLOO_SOCKET_IFNAME": "eth"}, FAIL, "no interface eth"),
        (
            "gloo-socket-ifname",
            {"GLOO_SOCKET_IFNAME": "eno1", "NCCL_SOCKET_IFNAME": "eno1"},
            PASS,
            "an interface",
        ),
        ("torch-nccl-names", {"TORCH_NCCL_BLOCKING_WAIT": "0"}, PASS, "default"),
        ("nccl-names", {"NCCL_HOME": "/opt/nccl", "NCCL_TESTS_SPLIT": "MOD 8"}, PASS, "all known"),
        ("nccl-names", {"NCCL_IB_GID_INDX": "3"}, WARN, "the closest name is NCCL_IB_GID_INDEX"),
        ("nccl-values", {"NCCL_NVLS_ENABLE": "on"}, WARN, "as 0"),
        ("nccl-net-plugin", {"NCCL_NET_PLUGIN": "none"}, PASS, "no library"),
        ("nccl-net-plugin", {"NCCL_NET_PLUGIN": "ofi"}, UNKNOWN, "is unknown"),
    ],
)
def test_value_of_a_variable(name, variables, verdict, message):
    finding = only(name, set_to(**variables))
    assert (finding.verdict, message in finding.message) == (verdict, True), finding


def test_bridge_that_nccl_may_choose():
    tree = healthy().file("/sys/class/net/virbr0/operstate", "down").update("addresses", virbr0="")
    assert only("nccl-socket-ifname", tree).verdict is PASS  # NCCL needs an address
    finding = only("nccl-socket-ifname", tree.update("addresses", virbr0="192.168.122.1/24"))
    assert finding.verdict is WARN
    assert finding.fix == "export NCCL_SOCKET_IFNAME=^docker,lo,virbr0"


def test_infiniband_interfaces_come_before_bridges():
    tree = healthy(layer="InfiniBand").file("/sys/class/net/virbr0/operstate", "down")
    assert only("nccl-socket-ifname", tree).verdict is PASS


def test_management_port_among_the_selected():
    tree = set_to(NCCL_IB_HCA="mlx5")
    tree.file("/sys/class/infiniband/mlx5_3/ports/1/rate", "100 Gb/sec (4X EDR)")
    finding = only("nccl-ib-hca", tree)
    assert finding.verdict is WARN and "mlx5_3 with 100 Gbit/s" in finding.message
    assert "mlx5_3" not in finding.fix.split(",")


def test_disabled_rdma_matters_only_where_a_port_is_active():
    tree = set_to(NCCL_IB_DISABLE="1").drop("/sys/class/infiniband")
    assert only("nccl-ib-disable", tree).verdict is PASS


def test_old_nccl_needs_the_gid_index():
    tree = set_to(NCCL_IB_GID_INDEX="3").call(
        "nccl-libraries", json.dumps([library("/l/libnccl.so.2", "2.18.3")])
    )
    assert only("nccl-gid-index", tree).verdict is PASS
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3", "IB/RoCE v1")
    assert only("nccl-gid-index", tree).verdict is WARN


@pytest.mark.parametrize(
    ("version", "default"),
    [("2.27.7", 20), ("2.23.4", 20), ("2.22.3", 18), ("2.14.3", 18), ("2.13.4", 14)],
)
def test_default_timeout_of_a_version(version, default):
    for value, verdict in ((default, PASS), (default - 1, WARN)):
        tree = set_to(NCCL_IB_TIMEOUT=str(value)).call(
            "nccl-libraries", json.dumps([library("/l/libnccl.so.2", version)])
        )
        assert only("nccl-ib-timeout", tree).verdict is verdict


def test_traffic_class_of_each_port():
    tree = set_to(NCCL_IB_TC="106")
    for index, text in enumerate(("Global tclass=106", "Global tclass=41", "")):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/tc/1/traffic_class", text)
    tree.drop("/sys/class/infiniband/mlx5_3/tc")
    findings = {finding.subject: finding for finding in run("nccl-ib-tc", tree)}
    assert [findings[name].verdict for name in ("mlx5_0", "mlx5_1", "mlx5_2")] == [PASS, WARN, PASS]
    assert "DSCP 26" in findings["mlx5_1"].message and "DSCP 10" in findings["mlx5_1"].message
    assert findings["mlx5_1"].fix == "export NCCL_IB_TC=41"
    assert (findings[""].verdict, findings[""].optional) == (UNKNOWN, True)
    tree.error("/sys/class/infiniband/mlx5_3/tc/1/traffic_class", "input/output error")
    assert [
        finding.optional for finding in run("nccl-ib-tc", tree) if finding.verdict is UNKNOWN
    ] == [False]


def test_traffic_class_is_skipped_on_infiniband():
    tree = healthy(layer="InfiniBand")
    environment(NCCL_IB_TC="106")(tree)
    assert only("nccl-ib-tc", tree).verdict is SKIP


@pytest.mark.parametrize("count, values", [(8, {"sm": 80}), (1, {}), (8, {"links": []}), (0, {})])
def test_nvls_does_not_concern_gpus_without_it(count, values):
    tree = healthy(gpus=count)
    environment(NCCL_NVLS_ENABLE="0")(tree)
    all_changed(**values)(tree)
    assert only("nccl-nvls", tree).verdict is PASS


def test_small_shared_memory_of_a_container_is_named():
    tree = set_to(NCCL_SHM_DISABLE="1").file("/.dockerenv", "")
    assert "--shm-size" in only("nccl-shm-disable", tree).fix


def test_plugin_that_exists():
    tree = set_to(NCCL_NET_PLUGIN="/opt/libnccl-net.so").call(
        "nccl-plugin net /opt/libnccl-net.so", "/opt/libnccl-net.so"
    )
    assert only("nccl-net-plugin", tree).verdict is PASS


@pytest.mark.parametrize(
    ("libraries", "verdict"),
    [
        ([], SKIP),
        ([library("/a", "2.27.7")], PASS),
        ([library("/a", "2.27.7"), library("/b", "2.27.7")], PASS),
        ([library("/a", "2.27.7"), library("/b", "")], UNKNOWN),
    ],
)
def test_libraries_of_nccl(libraries, verdict):
    assert (
        only("nccl-libraries", healthy().call("nccl-libraries", json.dumps(libraries))).verdict
        is verdict
    )


def test_environment_comes_before_the_files():
    tree = set_to(NCCL_IB_TIMEOUT="22").file("/etc/nccl.conf", "NCCL_IB_TIMEOUT=10")
    assert only("nccl-ib-timeout", tree).verdict is PASS
    assert {finding.subject: finding.verdict for finding in run("nccl-conf-files", tree)}[
        "/etc/nccl.conf"
    ] is WARN


def test_user_file_comes_before_that_of_the_system():
    tree = (
        healthy()
        .file("/etc/nccl.conf", "NCCL_ALGO=Ring")
        .file(f"{HOME}/.nccl.conf", "# site\nNCCL_ALGO=Tree")
    )
    finding = only("nccl-algo", tree)
    assert "NCCL_ALGO=Tree" in finding.message
    assert finding.fix == f"delete the line NCCL_ALGO=Tree from {HOME}/.nccl.conf"


def test_named_file_replaces_that_of_the_user():
    tree = (
        set_to(NCCL_CONF_FILE="/opt/nccl.conf")
        .file("/opt/nccl.conf", "NCCL_ALGO=Ring")
        .file(f"{HOME}/.nccl.conf", "NCCL_ALGO=Tree")
    )
    assert "NCCL_ALGO=Ring" in only("nccl-algo", tree).message


def test_empty_variable_hides_the_file():
    tree = set_to(NCCL_ALGO="").file("/etc/nccl.conf", "NCCL_ALGO=Ring")
    assert only("nccl-algo", tree).verdict is PASS


def test_named_file_that_is_missing():
    findings = run(
        "nccl-conf-files", set_to(NCCL_CONF_FILE="/opt/nccl.conf").error("/opt/nccl.conf", MISSING)
    )
    assert [finding.verdict for finding in findings] == [WARN, PASS]


def test_file_that_cannot_be_read():
    findings = run("nccl-conf-files", healthy().error("/etc/nccl.conf", "permission denied"))
    assert findings[-1].verdict is UNKNOWN and "permission denied" in findings[-1].message


def test_secret_in_a_file_is_not_shown():
    findings = run("nccl-conf-files", healthy().file("/etc/nccl.conf", "NCCL_API_TOKEN=hunter2 "))
    assert "hunter2" not in str(findings)


@pytest.mark.parametrize(
    ("text", "hypervisor", "verdict"),
    [
        ('<system version="1"/>', "QEMU", PASS),
        ('<system version="1">', "QEMU", WARN),  # without its end
        ('<system version="1"/>', "Supermicro", WARN),
        ("{}", "QEMU", WARN),
    ],
)
def test_topology_file(text, hypervisor, verdict):
    tree = (
        set_to(NCCL_TOPO_FILE="/t.xml")
        .file("/t.xml", text)
        .file("/sys/class/dmi/id/sys_vendor", hypervisor)
    )
    assert only("nccl-topo-file", tree).verdict is verdict
