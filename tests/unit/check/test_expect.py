"""Comparison of a node with its expectations: mutes, severities, containers."""

import json
import tomllib
from datetime import date
from pathlib import Path

import msgspec
import pytest
from equipped import LOSSES, equipped
from expecting import BAD, GOOD, bad, compared, learned
from healthy import healthy
from looking import of
from tree import Tree

from busbw.check.expect import file
from busbw.check.expect.learn import learn
from busbw.check.expect.mutes import ActiveMute, accepted
from busbw.check.expect.spec import Expectations, ExpectedGpus, Mute
from busbw.check.expect.text import text
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS
from busbw.check.snapshot import snapshot
from busbw.check.types import ReportedFinding
from busbw.core.finding import Verdict
from busbw.host.snapshot import parse_archive


def test_a_node_that_must_have_no_gpu():
    tree = equipped(gpus=0)
    for expected in ("pass", "unknown"):
        assert [
            finding.verdict.value
            for finding in compared("[gpus]\ncount = 0", tree.source()).findings
            if finding.id == "BW290"
        ] == [expected]
        for path in [path for path in tree.paths if path.startswith("/sys/bus/pci")]:
            tree.drop(path)


def test_a_snapshot_has_all_compared_values():
    source = parse_archive(snapshot(equipped().source()))
    assert text(learn(Machine(source)), "Learned from a test.") == GOOD
    assert bad(compared(GOOD, source)) == []


def test_machine_without_answers_meets_no_expectation():
    report = compared(GOOD, Tree().source())
    assert {finding.verdict for finding in report.findings if finding.id != "BW299"} == {
        Verdict.UNKNOWN
    }


def test_unexpected_parts_are_skipped():
    report = compared("[storage]\nnvme = 3\n", equipped().source())
    assert {finding.id for finding in report.findings if finding.verdict is not Verdict.SKIP} == {
        "BW298"
    }


def test_parts_missing_in_a_container_may_be_hidden():
    tree = equipped().file("/.dockerenv", "")
    for name in ("port", "mount", "GPU not in NVML", "interface"):
        LOSSES[name].change(tree)
    tree.update("environment", NVIDIA_VISIBLE_DEVICES="0,1")
    findings = {finding.id: finding.verdict for finding in bad(compared(GOOD, tree.source()))}
    assert findings == dict.fromkeys(("BW290", "BW293", "BW294", "BW298"), Verdict.UNKNOWN)


def test_a_container_with_some_of_the_gpus():
    """PCI shows it all eight, NVML the four that are for it."""
    tree = equipped().update("environment", NVIDIA_VISIBLE_DEVICES="0,1,2,3")
    for name in ("nvml", "nvml_health"):
        tree.update(name, gpus=json.loads(tree.calls[name]["text"])["gpus"][:4])
    assert tomllib.loads(learned(tree))["gpus"]["count"] == 4
    assert bad(compared(learned(tree), tree.source())) == []
    eight = "[gpus]\ncount = 8\n"
    assert [(finding.id, finding.verdict) for finding in bad(compared(eight, tree.source()))] == [
        ("BW290", Verdict.UNKNOWN)
    ]
    tree.drop("/sys/bus/pci/devices/0000:df:00.0")
    assert [(finding.id, finding.verdict) for finding in bad(compared(eight, tree.source()))] == [
        ("BW290", Verdict.FAIL)
    ]


def test_ports_without_names_match_the_most_similar_group():
    """With eight ports of the fabric and two for storage, only the port that lost half its rate is
    named.
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
    assert [
        (finding.subject, finding.message) for finding in bad(compared(groups, tree.source()))
    ] == [("mlx5_6", "rate is 200 Gbit/s, not 400 Gbit/s")]


def test_more_than_expected_or_other_names_only_warn():
    changed_toml = GOOD.replace("count = 8", "count = 4").replace('"mlx5_0"', '"mlx5_9"')
    verdicts = {
        (finding.id, finding.subject): finding.verdict
        for finding in bad(compared(changed_toml, equipped().source()))
    }
    assert verdicts[("BW290", "")] is Verdict.WARN
    assert Verdict.FAIL not in verdicts.values()
    (finding,) = [
        finding
        for finding in bad(compared(GOOD.replace('"mlx5_0"', '"mlx5_9"'), equipped().source()))
        if finding.id == "BW293"
    ]
    assert (finding.subject, finding.verdict) == ("mlx5_9", Verdict.WARN)


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
    assert [finding.subject for finding in bad(report) if finding.id == "BW070"] == counted
    assert [(mute.finding.subject, mute.reason) for mute in report.muted] == [
        (subject, "ticket 4711") for subject in muted
    ]
    assert all(evidence.where == "node.toml line 3" for evidence in report.muted)
    # not on the last day
    assert any(finding.id == "BW299" for finding in bad(report)) == ("2026-11-25" in more)


def _down(tree: Tree) -> None:
    port = "/sys/class/infiniband/mlx5_3/ports/1"
    tree.file(f"{port}/state", "1: DOWN").file(f"{port}/phys_state", "3: Disabled")


def _slow_and_old(tree: Tree) -> None:
    tree.file("/sys/class/infiniband/mlx5_3/ports/1/rate", "200 Gb/sec (2X NDR)")
    tree.file("/sys/class/infiniband/mlx5_3/fw_ver", "27.1.1")


def _two_down(tree: Tree) -> None:
    _down(tree)
    tree.file("/sys/class/infiniband/mlx5_4/ports/1/state", "2: INIT")


@pytest.mark.parametrize(
    ("change", "muted", "left"),
    [
        # each finding of one fault mutes the others
        (_down, "nic-state mlx5_3", ""),
        (_down, "nic-physical-state mlx5_3", ""),
        (_down, "expect-ports mlx5_3", ""),
        (LOSSES["rate of a port"].change, "nic-rate mlx5_5", ""),
        (LOSSES["PCIe width of a port"].change, "pcie-width mlx5_2", ""),
        (LOSSES["GPU that does not answer"].change, "gpu-count GPU 2", ""),
        (LOSSES["GPU not in NVML"].change, "expect-gpus 0000:df:00.0", ""),
        (LOSSES["GPUs off PCI"].change, "gpu-missing", ""),
        (LOSSES["CPUs"].change, "cpu-online", ""),
        (LOSSES["NVSwitch"].change, "expect-nvlinks", ""),
        (LOSSES["persistence"].change, "gpu-persistence GPU 5", ""),
        # but no other fault
        (_two_down, "nic-state mlx5_3", "nic-state mlx5_4, expect-ports mlx5_4"),
        (_slow_and_old, "nic-rate mlx5_3", "nic-firmware mlx5_3, expect-ports mlx5_3"),
        (
            LOSSES["GPUs off PCI"].change,
            "expect-gpus 0000:43:00.0",
            "gpu-missing, expect-gpus 0000:52:00.0",
        ),
        (LOSSES["port"].change, "pcie-path GPU 3", "nic-present 0000:62:00.0, expect-ports mlx5_3"),
        (_two_down, "*", ""),
    ],
)
def test_a_mute_is_of_a_fault_whatever_check_finds_it(change, muted, left):
    tree = equipped()
    change(tree)
    check, _, subject = muted.partition(" ")
    mute = MUTE.format(check=check, until="2027-01-01")
    if check != "*":
        mute += f'subject = "{subject}"\n'
    report = compared(f"{GOOD}\n{mute}", tree.source(), checks=[check.row.name for check in CHECKS])
    found = [f"{finding.name} {finding.subject}".strip() for finding in bad(report)]
    assert ", ".join(found) == left
    assert {mute.reason for mute in report.muted} == {"ticket 4711"}


def test_a_graver_fault_of_the_same_part_is_not_muted():
    """The GPU had an Xid that was accepted; now it is lost."""
    findings = [
        ReportedFinding(id="BW005", name="gpu-xid", layer="GPU", verdict=Verdict.WARN,
                        subject="GPU 1", message="Xid 94"),
        ReportedFinding(id="BW001", name="gpu-count", layer="GPU", verdict=Verdict.FAIL,
                        subject="GPU 1", message="it does not answer"),
    ]  # fmt: skip
    mute = ActiveMute(Mute(check="gpu-xid", reason="known", until=date(2027, 1, 1)), "node.toml")
    assert list(accepted(findings, [mute])) == [id(findings[0])]


def test_a_mute_that_has_ended_is_reported():
    report = compared(
        MUTE.format(check="nic-mtu", until="2026-11-25"), MTU.source(), checks=["nic-mtu"]
    )
    (ended,) = [finding for finding in bad(report) if finding.id == "BW299"]
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
        finding
        for finding in report.findings
        if finding.id == "BW070" and finding.verdict is not Verdict.PASS
    ]
    assert [(finding.subject, finding.verdict) for finding in raised] == [
        ("mlx5_3", Verdict.FAIL),
        ("mlx5_5", Verdict.FAIL),
    ]
    assert "(a warning, raised by node.toml line 2)" in raised[0].message
    assert {finding.verdict for finding in report.findings if finding.id == "BW066"} == {
        Verdict.PASS
    }


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
            missing = [
                field.name for field in msgspec.structs.fields(kind) if field.name not in source
            ]
            assert missing == [], field.name
    assert ExpectedGpus().memory_tolerance == 0.02


def test_all_checks_pass_on_the_server_of_these_tests():
    machine = Machine(equipped().source())
    assert [
        finding for check in CHECKS for finding in check.run(machine) if finding.verdict in BAD
    ] == []
    assert bad(compared(learned(healthy()), healthy().source())) == []


def test_a_gpu_that_does_not_answer_is_counted_once():
    tree = equipped()
    LOSSES["GPU that does not answer"].change(tree)
    assert [(finding.id, finding.subject) for finding in bad(compared(GOOD, tree.source()))] == [
        ("BW290", "GPU 2")
    ]
