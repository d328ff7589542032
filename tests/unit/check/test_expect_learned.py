"""Expectations are learned from a node, and the node meets them."""

import tomllib
from pathlib import Path

import pytest
from equipped import LOSSES, equipped
from expecting import GOOD, TODAY, bad, compared, learned
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busbw.check.expect import file
from busbw.check.expect.learn import learn
from busbw.check.expect.spec import Expectations, ExpectedGpus
from busbw.check.expect.text import text
from busbw.check.machine import Machine
from busbw.core.finding import Verdict
from busbw.host.snapshot import recorded

HOSTS = Path(__file__).parents[2] / "hosts"


def test_a_file_of_everything_that_can_be_learned():
    table = tomllib.loads(GOOD)
    assert table["gpus"] == {
        "count": 8,
        "addresses": table["gpus"]["addresses"],
        "model": "NVIDIA H100 80GB HBM3",
        "memory_bytes": 85520809984,
        "vbios": "96.00.A5.00.01",
        "serials": [f"gpu-1 165372305273{gpu}" for gpu in range(8)],
        "persistence": True,
        "ecc": True,
        "mig": False,
        "nvlinks": 18,
        "nvlink_gb_s": 25,
        "nvswitches": 4,
        "pcie_gt_s": 32,
        "pcie_width": 16,
    }
    names = [f"mlx5_{port}" for port in range(8)]
    port = {
        "link_layer": "InfiniBand",
        "state": "ACTIVE",
        "rate_gbit_s": 400,
        "firmware_min": "28.41.1000",
        "pcie_gt_s": 32,
        "pcie_width": 16,
    }
    assert table["ports"] == [{"count": 8, "names": names, **port}]
    assert table["interfaces"] == [{"count": 1, "names": ["eno1"], "rate_gbit_s": 25, "mtu": 1500}]
    assert table["cpus"] == {"sockets": 2, "online": 192, "numa_nodes": 2}
    assert table["memory"] == {"ram_bytes": 2113390140 * 1024, "hugepages": 5128}
    assert table["versions"] == {
        "driver_min": "570.158.01",
        "kernel_min": "6.8.0-60-generic",
        "os": "ubuntu",
        "os_min": "22.04",
    }
    assert table["storage"] == {"nvme": 3}
    assert [(mount["path"], mount["type"], mount.get("writable")) for mount in table["mounts"]] == [
        ("/", "ext4", True),
        ("/data sets", "lustre", None),
        ("/raid", "xfs", True),
    ]


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_found_and_named(name):
    loss, tree = LOSSES[name], equipped()
    loss.change(tree)
    findings = [
        finding
        for finding in compared(GOOD, tree.source()).findings
        if finding.id == loss.check and finding.subject == loss.subject
    ]
    (finding,) = [finding for finding in findings if finding.verdict.value == loss.verdict]
    assert loss.says in finding.message
    if finding.verdict is not Verdict.UNKNOWN:
        assert finding.fix and "{" not in finding.fix
        assert any("node.toml line " in evidence.expected for evidence in finding.evidence)
        assert next(evidence for evidence in finding.evidence).seen != ""


def test_each_part_of_a_loss_is_named():
    tree = equipped()
    LOSSES["rate of all ports"].change(tree)
    LOSSES["GPUs off PCI"].change(tree)
    failed = [finding.subject for finding in bad(compared(GOOD, tree.source()))]
    assert failed == ["0000:43:00.0", "0000:52:00.0", *(f"mlx5_{port}" for port in range(8))]


# Wrong whatever is expected, or only with all GPUs there.
DEFECTS = {"GPU not in NVML", "GPU that does not answer", "dead NVMe drive", "GPU elsewhere"}


SERVERS = st.fixed_dictionaries(
    {
        "gpus": st.integers(0, 8),
        "ports": st.integers(0, 9),
        "layer": st.sampled_from(["Ethernet", "InfiniBand"]),
    }
)


@settings(suppress_health_check=list(HealthCheck))
@given(SERVERS, st.sets(st.sampled_from(sorted(LOSSES.keys() - DEFECTS)), max_size=3))
def test_any_server_meets_the_expectations_learned_from_it(server, losses):
    """Also of a server that has lost something: then less is expected of it."""
    tree = equipped(**server)
    for name in losses:
        try:
            LOSSES[name].change(tree)
        except IndexError:  # a server without that GPU
            continue
    toml = learned(tree)
    assert bad(compared(toml, tree.source())) == [], toml


GARBAGE = st.sampled_from(
    [
        "",
        "\0",
        "nan",
        "-1",
        "9" * 30,
        "\u202e\U0001f600\x7f\"'\\",
        "0x",
        "{}",
        "[]",
        "null",
        "1e999 Gb/sec (4X",
    ]
)


@settings(suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.integers(0, 10**6), GARBAGE, min_size=1, max_size=60))
def test_expectations_learned_from_garbage_are_a_valid_file(garbage):
    tree = equipped(gpus=2, ports=2)
    paths, calls = (
        sorted(path for path in tree.paths if "text" in tree.paths[path]),
        sorted(tree.calls),
    )
    for at, value in garbage.items():
        if at % 7 == 0:
            tree.call(calls[at % len(calls)], value)
        else:
            tree.file(paths[at % len(paths)], value)
    expectations = learn(Machine(tree.source()))
    if expectations != Expectations():
        origin = "\n".join(garbage.values())
        file.parse(file.Text("node.toml", text(expectations, origin), TODAY))


def test_names_may_be_anything():
    name = 'a"b\\c\x7f\x1f\n\u00e9\u202e\U0001f600'
    toml = text(Expectations(gpus=ExpectedGpus(model=name, vbios="\ud800")), "")
    assert toml.isascii()
    assert tomllib.loads(toml)["gpus"] == {"model": name, "vbios": "?"}


@pytest.mark.parametrize("name", sorted(path.name for path in HOSTS.glob("*.jsonl")))
def test_recorded_hosts_meet_the_expectations_learned_from_them(name):
    source = recorded(HOSTS / name)
    report = compared(text(learn(Machine(source)), ""), source)
    assert bad(report) == []
    assert Verdict.PASS in {finding.verdict for finding in report.findings}


def test_a_recorded_host_without_the_condition_of_its_gpus():
    """A snapshot of a result has fewer of NVML's values than one of `busbw snapshot`."""
    table = tomllib.loads(text(learn(Machine(recorded(HOSTS / "h100x8-ib.jsonl"))), ""))
    assert table["versions"]["driver_min"] == "550.54.15"
    assert (table["gpus"]["count"], table["gpus"]["nvlinks"], table["gpus"]["nvlink_gb_s"]) == (
        8,
        18,
        25,
    )
    assert (table["gpus"]["pcie_gt_s"], table["gpus"]["pcie_width"]) == (32, 16)
    assert [(port["count"], port["rate_gbit_s"]) for port in table["ports"]] == [(8, 400)]


def test_the_largest_group_is_first():
    tree = equipped().file("/sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)")
    assert [
        (port["count"], port["rate_gbit_s"]) for port in tomllib.loads(learned(tree))["ports"]
    ] == [(7, 400), (1, 100)]
    tree.files("/sys/class/net/eno2", speed="25000", operstate="up", mtu="9000").link(
        "/sys/class/net/eno2/device", "../../pci"
    )
    tree.files("/sys/class/net/eno3", speed="25000", operstate="up", mtu="9000").link(
        "/sys/class/net/eno3/device", "../../pci"
    )
    interfaces = tomllib.loads(learned(tree))["interfaces"]
    assert [(interface["names"], interface["mtu"]) for interface in interfaces] == [
        (["eno2", "eno3"], 9000),
        (["eno1"], 1500),
    ]


def test_without_nvml_only_switches_are_learned():
    tree = equipped().failing("nvml", "no driver").failing("nvml_health", "no driver")
    assert tomllib.loads(learned(tree))["gpus"] == {"nvswitches": 4}
