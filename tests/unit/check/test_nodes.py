"""Many nodes compared, snapshots, and machines whose files hold garbage."""

import random
import resource
import time

import pytest
from healthy import healthy
from hypothesis import given
from hypothesis import strategies as st

from busbw.check import cluster
from busbw.check.compare import differences
from busbw.check.examine import examine
from busbw.check.facts import facts, merged
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS
from busbw.check.snapshot import snapshot
from busbw.core.finding import Verdict
from busbw.host.recording import parse_archive
from busbw.host.source import Live
from busbw.views import checks as view

MIB = 1 << 20


def test_node_that_differs_is_named_with_its_value():
    nodes = {f"gpu-{number}": {"kernel": "6.8", "MTU of RDMA ports": "9000"} for number in range(8)}
    nodes["gpu-5"] = {"kernel": "6.8", "MTU of RDMA ports": "9000 (7), 1500 (mlx5_3)", "hypervisor": "QEMU"}
    found = {one.fact: one for one in differences(nodes)}
    assert found.keys() == {"MTU of RDMA ports", "hypervisor"}
    assert (found["MTU of RDMA ports"].usual, found["MTU of RDMA ports"].usual_hosts) == ("9000", 7)
    assert found["MTU of RDMA ports"].odd == {"9000 (7), 1500 (mlx5_3)": ["gpu-5"]}
    assert found["hypervisor"].odd == {"QEMU": ["gpu-5"]}


def test_no_value_is_usual_without_a_majority():
    (found,) = differences({"a": {"kernel": "1"}, "b": {"kernel": "2"}})
    assert (found.usual, found.usual_hosts, found.odd) == ("", 0, {"1": ["a"], "2": ["b"]})


@given(st.dictionaries(st.text(max_size=3), st.sampled_from(["x", "y", ""]), max_size=5))
def test_values_of_parts_are_one_text_if_all_are_equal(values):
    assert merged(values) == next(iter(values.values()), "") or len(set(values.values())) > 1


def test_healthy_servers_have_equal_facts():
    same = facts(Machine(healthy().source()))
    other = facts(Machine(healthy().file("/sys/class/infiniband/mlx5_2/fw_ver", "28.40.1000").source()))
    assert same["rate of RDMA ports"] == "400 Gb/sec (4X NDR)"
    (found,) = differences({"a": same, "b": same, "c": other})
    assert found.fact == "firmware of RDMA ports" and list(found.odd.values()) == [["c"]]


def test_200_nodes_are_compared_within_2_s_and_100_mb(tmp_path):
    """A fifth of the nodes, with twice the time per node, as other tests run beside it: 1,000 within 5 s is the aim."""
    text = snapshot(healthy(ports=16).source())
    files = []
    for number in range(200):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(text if number != 70 else text.replace('"400 Gb/sec (4X NDR)', '"200 Gb/sec (2X NDR)', 1))
        files.append(str(path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    nodes = {file: cluster.facts_of(file) for file in files}
    found = differences(nodes)
    assert time.process_time() - started < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * MIB // 1024
    assert [(one.fact, list(one.odd.values())) for one in found] == [("rate of RDMA ports", [[files[70]]])]


def test_all_checks_of_a_large_server_take_under_half_a_second():
    source = healthy(gpus=8, ports=16).source()
    started = time.process_time()
    examine(source)
    assert time.process_time() - started < 0.5


def test_snapshot_gives_the_same_findings():
    for source in (Live(), healthy().source()):
        text = snapshot(source)
        first = examine(parse_archive(text))
        assert first.findings == examine(parse_archive(snapshot(parse_archive(text)))).findings
        assert [one.id for one in first.findings] == [one.id for one in examine(source).findings]


def test_secrets_do_not_reach_a_snapshot(monkeypatch):
    monkeypatch.setenv("NCCL_AUTH_TOKEN", "hunter2")
    monkeypatch.setenv("NCCL_PSK", "hunter2")
    tree = healthy().file("/proc/cmdline", "quiet luks.password=hunter2 proxy=http://me:hunter2@proxy/ iommu=pt")
    assert "hunter2" not in snapshot(Live())
    assert "hunter2" not in snapshot(tree.source())


GARBAGE = [
    "",
    "\0\0\0",
    "nan",
    "-1",
    "99999999999999999999",
    "é\udcff".encode("utf-8", "surrogatepass").decode("latin-1"),
    "a b c\n" * 50,
    "0x",
    "{}",
]


@pytest.mark.parametrize("seed", range(12))
def test_garbage_in_files_makes_no_check_fail(seed):
    tree, dice = healthy(), random.Random(seed)
    for path in list(tree.paths):
        if "text" in tree.paths[path] and dice.random() < 0.5:
            tree.file(path, dice.choice(GARBAGE))
    for name in list(tree.calls):
        if dice.random() < 0.3:
            tree.failing(name, "no such thing")
    machine = Machine(tree.source())
    for check in CHECKS:
        assert check.run(machine), check.row.name


def test_check_that_fails_is_unknown_and_the_others_go_on():
    broken = examine(healthy().call("nvml", "not json").source())
    assert all(one.verdict is not Verdict.FAIL or one.evidence for one in broken.findings)
    assert {one.id for one in broken.findings} == {check.row.id for check in CHECKS}


def test_finding_of_several_nodes_is_printed_once():
    slow = healthy().file("/sys/class/net/eth3/mtu", "1500")
    nodes = {f"n{at}": cluster.here((slow if at else healthy()).source(), CHECKS, f"n{at}") for at in range(3)}
    for name, node in nodes.items():
        node.report.host = name
    text = view.cluster_text(cluster.joined(nodes, {"n9": "no answer within the time limit"}), 100)
    assert text.count("eth3 has MTU 1500") == 1
    assert "on: n1, n2" in text
    assert "MTU of RDMA ports: 9000 on n0; 9000 (7), 1500 (mlx5_3) on the other 2" in text
    assert "FAIL    n9: no answer within the time limit" in text
    assert text.startswith("4 nodes, 3 answered")


def test_line_for_a_monitor_has_nagios_codes():
    good, bad = examine(healthy().source()), examine(healthy().file("/sys/class/net/eth3/mtu", "1500").source())
    assert view.brief(good)[0] == 0 and view.brief(good)[1].startswith("BUSBW OK - gpu-1: ")
    code, line = view.brief(bad)
    assert code == 1 and line.startswith("BUSBW WARNING - gpu-1: nic-mtu mlx5_3; ")
    assert "fail=0" in line
