"""What a node should have: learned from a node, compared with it and with others, mutes and
severities, errors in the file.
"""

import json
import tomllib
from datetime import date
from pathlib import Path

import msgspec
import pytest
from equipped import LOSSES, equipped
from healthy import healthy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from looking import of
from tree import Tree

from busbw.check.expect import file
from busbw.check.expect.file import Expect, judge
from busbw.check.expect.learn import learn
from busbw.check.expect.spec import Expectations, Gpus
from busbw.check.expect.text import text
from busbw.check.facts import snapshot
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS, EXPECTATIONS, find
from busbw.core.finding import Verdict
from busbw.host.snapshot import parse_archive, recorded

HOSTS = Path(__file__).parents[2] / "hosts"
TODAY = date(2026, 11, 26)
ALL = frozenset(one.row.id for one in EXPECTATIONS)
BAD = {Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN}


def learned(tree):
    return text(learn(Machine(tree.source())), "Learned from a test.")


def compared(toml, source, *, checks=(), ids=ALL):
    return judge(
        source,
        [find(name) for name in checks],
        expect=Expect(file.Text("node.toml", toml, TODAY), ids),
    )


def bad(report):
    return [one for one in report.findings if one.verdict in BAD]


GOOD = learned(equipped())


def test_a_file_of_everything_that_can_be_learned():
    table = tomllib.loads(GOOD)
    assert table["gpus"] == {
        "count": 8,
        "addresses": table["gpus"]["addresses"],
        "model": "NVIDIA H100 80GB HBM3",
        "memory_bytes": 85520809984,
        "vbios": "96.00.A5.00.01",
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
    assert [(one["path"], one["type"], one.get("writable")) for one in table["mounts"]] == [
        ("/", "ext4", True),
        ("/data sets", "lustre", None),
        ("/raid", "xfs", True),
    ]


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_found_and_named(name):
    loss, tree = LOSSES[name], equipped()
    loss.change(tree)
    found = [
        one
        for one in compared(GOOD, tree.source()).findings
        if one.id == loss.check and one.subject == loss.subject
    ]
    (one,) = [one for one in found if one.verdict.value == loss.verdict]
    assert loss.says in one.message
    if one.verdict is not Verdict.UNKNOWN:
        assert one.fix and "{" not in one.fix
        assert any("node.toml line " in evidence.expected for evidence in one.evidence)
        assert next(evidence for evidence in one.evidence).seen != ""


def test_each_part_of_a_loss_is_named():
    tree = equipped()
    LOSSES["rate of all ports"].change(tree)
    LOSSES["GPUs off PCI"].change(tree)
    failed = [one.subject for one in bad(compared(GOOD, tree.source()))]
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


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(SERVERS, st.sets(st.sampled_from(sorted(LOSSES.keys() - DEFECTS)), max_size=3))
def test_what_is_learned_from_any_server_is_met_by_it(server, losses):
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


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.integers(0, 10**6), GARBAGE, min_size=1, max_size=60))
def test_what_is_learned_from_garbage_is_a_valid_file(garbage):
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
    written = text(Expectations(gpus=Gpus(model=name, vbios="\ud800")), "")
    assert written.isascii()
    assert tomllib.loads(written)["gpus"] == {"model": name, "vbios": "?"}


@pytest.mark.parametrize("name", sorted(path.name for path in HOSTS.glob("*.jsonl")))
def test_recorded_hosts_meet_what_is_learned_from_them(name):
    source = recorded(HOSTS / name)
    report = compared(text(learn(Machine(source)), ""), source)
    assert bad(report) == []
    assert Verdict.PASS in {one.verdict for one in report.findings}


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
    assert [(one["count"], one["rate_gbit_s"]) for one in table["ports"]] == [(8, 400)]


def test_the_largest_group_stands_first():
    tree = equipped().file("/sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)")
    assert [
        (one["count"], one["rate_gbit_s"]) for one in tomllib.loads(learned(tree))["ports"]
    ] == [(7, 400), (1, 100)]
    tree.files("/sys/class/net/eno2", speed="25000", operstate="up", mtu="9000").link(
        "/sys/class/net/eno2/device", "../../pci"
    )
    tree.files("/sys/class/net/eno3", speed="25000", operstate="up", mtu="9000").link(
        "/sys/class/net/eno3/device", "../../pci"
    )
    found = tomllib.loads(learned(tree))["interfaces"]
    assert [(one["names"], one["mtu"]) for one in found] == [
        (["eno2", "eno3"], 9000),
        (["eno1"], 1500),
    ]


def test_without_nvml_only_switches_are_learned():
    tree = equipped().failing("nvml", "no driver").failing("nvml_health", "no driver")
    assert tomllib.loads(learned(tree))["gpus"] == {"nvswitches": 4}


def test_a_node_that_must_have_no_gpu():
    tree = equipped(gpus=0)
    for expected in ("pass", "unknown"):
        assert [
            one.verdict.value
            for one in compared("[gpus]\ncount = 0", tree.source()).findings
            if one.id == "BW290"
        ] == [expected]
        for path in [path for path in tree.paths if path.startswith("/sys/bus/pci")]:
            tree.drop(path)


def test_a_snapshot_has_what_is_compared():
    source = parse_archive(snapshot(equipped().source()))
    assert text(learn(Machine(source)), "Learned from a test.") == GOOD
    assert bad(compared(GOOD, source)) == []


def test_machine_that_tells_nothing_meets_no_expectation():
    report = compared(GOOD, Tree().source())
    assert {one.verdict for one in report.findings if one.id != "BW299"} == {Verdict.UNKNOWN}


def test_what_is_not_expected_is_skipped():
    report = compared("[storage]\nnvme = 3\n", equipped().source())
    assert {one.id for one in report.findings if one.verdict is not Verdict.SKIP} == {"BW298"}


def test_in_a_container_what_is_missing_may_be_hidden():
    tree = equipped().file("/.dockerenv", "")
    for name in ("port", "mount", "GPU not in NVML", "interface"):
        LOSSES[name].change(tree)
    tree.update("environment", NVIDIA_VISIBLE_DEVICES="0,1")
    found = {one.id: one.verdict for one in bad(compared(GOOD, tree.source()))}
    assert found == dict.fromkeys(("BW290", "BW293", "BW294", "BW298"), Verdict.UNKNOWN)


def test_a_container_with_some_of_the_gpus():
    """PCI shows it all eight, NVML the four that are for it."""
    tree = equipped().update("environment", NVIDIA_VISIBLE_DEVICES="0,1,2,3")
    for name in ("nvml", "nvml_health"):
        tree.update(name, gpus=json.loads(tree.calls[name]["text"])["gpus"][:4])
    assert tomllib.loads(learned(tree))["gpus"]["count"] == 4
    assert bad(compared(learned(tree), tree.source())) == []
    eight = "[gpus]\ncount = 8\n"
    assert [(one.id, one.verdict) for one in bad(compared(eight, tree.source()))] == [
        ("BW290", Verdict.UNKNOWN)
    ]
    tree.drop("/sys/bus/pci/devices/0000:df:00.0")
    assert [(one.id, one.verdict) for one in bad(compared(eight, tree.source()))] == [
        ("BW290", Verdict.FAIL)
    ]


def test_ports_without_names_stand_for_the_group_they_are_like():
    """Eight ports of the fabric and two for storage: the one that lost half its rate is named,
    and no other.
    """
    groups = """
[[ports]]
count = 7
rate_gbit_s = 400
state = "ACTIVE"
[[ports]]
count = 1
rate_gbit_s = 100
"""
    tree = equipped().file("/sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)")
    assert bad(compared(groups, tree.source())) == []
    tree.file("/sys/class/infiniband/mlx5_6/ports/1/rate", "200 Gb/sec (4X HDR)")
    assert [(one.subject, one.message) for one in bad(compared(groups, tree.source()))] == [
        ("mlx5_6", "rate is 200 Gbit/s, not 400 Gbit/s")
    ]


def test_more_than_expected_or_other_names_only_warn():
    few = GOOD.replace("count = 8", "count = 4").replace('"mlx5_0"', '"mlx5_9"')
    found = {(one.id, one.subject): one.verdict for one in bad(compared(few, equipped().source()))}
    assert found[("BW290", "")] is Verdict.WARN
    assert Verdict.FAIL not in found.values()
    (named,) = [
        one
        for one in bad(compared(GOOD.replace('"mlx5_0"', '"mlx5_9"'), equipped().source()))
        if one.id == "BW293"
    ]
    assert (named.subject, named.verdict) == ("mlx5_9", Verdict.WARN)


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ('driver_max = "570"', Verdict.PASS),
        ('driver_max = "570.158"', Verdict.PASS),
        ('driver_max = "570.150"', Verdict.FAIL),
        ('driver_max = "565"', Verdict.FAIL),
        ('driver_min = "570"', Verdict.PASS),
        ('driver_min = "570.158.02"', Verdict.FAIL),
        ('kernel_min = "5.15"\nkernel_max = "6.8"', Verdict.PASS),
        ('kernel_max = "6.8.0-59"', Verdict.FAIL),
        ('os = "ubuntu"\nos_max = "22"', Verdict.PASS),
    ],
)
def test_ranges_of_versions(limits, verdict):
    assert (
        of(
            compared(f"[versions]\n{limits}\n", equipped().source(), ids={"BW291"}).findings, ""
        ).verdict
        is verdict
    )


MTU = (
    equipped(layer="Ethernet")
    .file("/sys/class/net/eth3/mtu", "1500")
    .file("/sys/class/net/eth5/mtu", "1500")
)
MUTE = '[[mute]]\ncheck = "{check}"\nreason = "ticket 4711"\nuntil = {until}\n'


@pytest.mark.parametrize(
    ("more", "counted", "muted"),
    [
        ("", ["mlx5_3", "mlx5_5"], []),
        (MUTE.format(check="nic-mtu", until="2026-11-26"), [], ["mlx5_3", "mlx5_5"]),
        (
            MUTE.format(check="BW070", until="2027-01-01") + 'subject = "mlx5_3"\n',
            ["mlx5_5"],
            ["mlx5_3"],
        ),
        (
            MUTE.format(check="bw070", until="2027-01-01") + 'host = "gpu-1"\n',
            [],
            ["mlx5_3", "mlx5_5"],
        ),
        (
            MUTE.format(check="nic-mtu", until="2027-01-01") + 'host = "gpu-2"\n',
            ["mlx5_3", "mlx5_5"],
            [],
        ),
        (MUTE.format(check="nic-rate", until="2027-01-01"), ["mlx5_3", "mlx5_5"], []),
        (MUTE.format(check="nic-mtu", until="2026-11-25"), ["mlx5_3", "mlx5_5"], []),
    ],
)
def test_mutes(more, counted, muted):
    report = compared(f"[storage]\nnvme = 3\n{more}", MTU.source(), checks=["nic-mtu"])
    assert [one.subject for one in bad(report) if one.id == "BW070"] == counted
    assert [(one.finding.subject, one.reason) for one in report.muted] == [
        (subject, "ticket 4711") for subject in muted
    ]
    assert all(one.where == "node.toml line 3" for one in report.muted)
    # not on the last day
    assert any(one.id == "BW299" for one in bad(report)) == ("2026-11-25" in more)


def test_a_mute_that_has_ended_is_reported():
    report = compared(
        MUTE.format(check="nic-mtu", until="2026-11-25"), MTU.source(), checks=["nic-mtu"]
    )
    (ended,) = [one for one in bad(report) if one.id == "BW299"]
    assert (ended.verdict, ended.subject) == (Verdict.WARN, "nic-mtu")
    assert ended.message == "the mute of nic-mtu ended on 2026-11-25: ticket 4711"
    assert (ended.evidence[0].where, ended.evidence[0].seen) == (
        "node.toml line 4",
        "until 2026-11-25",
    )


def test_a_severity_raises_warnings_and_nothing_else():
    report = compared(
        '[severity]\nnic-mtu = "fail"\n', MTU.source(), checks=["nic-mtu", "nic-rate"]
    )
    raised = [
        one for one in report.findings if one.id == "BW070" and one.verdict is not Verdict.PASS
    ]
    assert [(one.subject, one.verdict) for one in raised] == [
        ("mlx5_3", Verdict.FAIL),
        ("mlx5_5", Verdict.FAIL),
    ]
    assert "(a warning, raised by node.toml line 2)" in raised[0].message
    assert {one.verdict for one in report.findings if one.id == "BW066"} == {Verdict.PASS}


def test_every_key_of_the_file_is_judged_or_documented():
    """A key that no expectation reads would be accepted and never checked."""
    source = "".join(
        path.read_text()
        for path in Path(file.__file__).parent.glob("*.py")
        if path.stem not in ("spec", "text", "learn")
    )
    for field in msgspec.structs.fields(Expectations):
        kind = field.type if not getattr(field.type, "__args__", None) else field.type.__args__[0]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            missing = [one.name for one in msgspec.structs.fields(kind) if one.name not in source]
            assert missing == [], field.name
    assert Gpus().memory_tolerance == 0.02


def test_all_checks_pass_on_the_server_of_these_tests():
    machine = Machine(equipped().source())
    assert [one for check in CHECKS for one in check.run(machine) if one.verdict in BAD] == []
    assert bad(compared(learned(healthy()), healthy().source())) == []


def test_a_gpu_that_does_not_answer_is_counted_once():
    tree = equipped()
    LOSSES["GPU that does not answer"].change(tree)
    assert [(one.id, one.subject) for one in bad(compared(GOOD, tree.source()))] == [
        ("BW290", "GPU 2")
    ]
