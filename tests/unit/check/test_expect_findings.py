"""The findings of expectations: fixes, evidence, and parts that they name."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from equipped import LOSSES, equipped
from expecting_keys import bad, compared
from healthy_gpu import changed
from healthy_pcie import gpu_bdf, port_bdf
from hypothesis import given
from hypothesis import strategies as st
from tree import Tree

from busbw.check.expect import inventory
from busbw.check.expect.learn import learn
from busbw.check.expect.text import text
from busbw.check.machine import Machine
from busbw.check.registry import EXPECTATIONS
from busbw.core.finding import Verdict
from busbw.core.topology import Gpu as TopologyGpu
from busbw.host.gpu import PCIE_X16
from busbw.host.interfaces import Interface

FIXES = {
    "persistence": "nvidia-persistenced",
    "ECC": "nvidia-smi -i 6 -e 1; nvidia-smi -i 6 -r",
    "MIG": "nvidia-smi -i 0 -mig 0",
    "VBIOS": "update the VBIOS of GPU 4",
    "model": "replace GPU 2, or correct",
    "GPU memory": "nvidia-smi -q -i 3",
    "read only": "mount -o remount,rw /raid",
    "mount type": "findmnt /raid",
    "mount": "mount /raid;",
    "huge pages": "sysctl -w vm.nr_hugepages=5128",
    "half the RAM": "dmidecode",
    "dead NVMe drive": "nvme smart-log /dev/nvme2",
    "PCIe width": f"the link speed of {gpu_bdf(3)}'s slot",
    "rate of a port": "mlxlink -d mlx5_5 -m",
    "GPUs off PCI": gpu_bdf(1),
    "NVLinks": "nvidia-smi nvlink -s -i 2;",
}


@pytest.mark.parametrize("name", FIXES)
def test_fixes_name_the_part(name):
    loss, tree = LOSSES[name], equipped()
    loss.change(tree)
    expectations = text(learn(Machine(equipped().source())), "")
    finding = next(
        finding
        for finding in compared(expectations, tree)
        if finding.verdict is Verdict.FAIL
        and (finding.id, finding.subject) == (loss.check, loss.subject)
    )
    assert FIXES[name] in finding.fix


@pytest.mark.parametrize(
    ("ram", "pages", "fix"),
    [
        (1000, 9, "sysctl -w vm.nr_hugepages=9"),
        (1000, 8, "sysctl -w vm.nr_hugepages=9"),
        (900, 8, "sysctl"),
        (899, 8, "dmidecode"),
        (899, 9, "dmidecode"),
    ],
)
def test_too_few_huge_pages_do_not_count_as_missing_memory(ram, pages, fix):
    tree = equipped().file("/proc/meminfo", f"MemTotal: {ram} kB\nHugePages_Total: {pages}")
    findings = compared("[memory]\nram_bytes = 1024000\nram_tolerance = 0.1\nhugepages = 9\n", tree)
    (finding,) = (finding for finding in findings if finding.id == "BW296")
    assert (finding.verdict is Verdict.PASS) == (ram == 1000 and pages == 9)
    assert finding.verdict is Verdict.PASS or fix in finding.fix


def test_a_gpu_that_does_not_answer_is_named_by_its_address():
    tree = equipped()
    changed(7, error="x")(tree)
    (finding,) = (
        finding
        for finding in compared("[gpus]\nmodel = 'NVIDIA H100 80GB HBM3'", tree)
        if finding.verdict is Verdict.FAIL
    )
    assert f"if GPU {gpu_bdf(7)} is still missing" in finding.fix


def test_evidence_of_missing_parts():
    tree = equipped()
    for name in ("all ports", "mount"):
        LOSSES[name].change(tree)
    for path in [
        path
        for path in tree.paths
        if tree.paths[path].get("text", "").strip() in ("0x010802", "0x068000")
    ]:
        tree.drop(path.rpartition("/")[0])
    expectations = text(learn(Machine(equipped().source())), "")
    readings = {
        finding.evidence[0].seen
        for finding in compared(expectations, tree)
        if finding.verdict is Verdict.FAIL
    }
    assert readings == {"none", "no such mount"}


def test_the_device_of_two_ports_has_one_link():
    """A dual-port card is one PCI function, as mlx4 has it."""
    tree = equipped(ports=1)
    for name in ("link_layer", "state", "rate"):
        tree.file(
            f"/sys/class/infiniband/mlx5_0/ports/2/{name}",
            tree.paths[f"/sys/class/infiniband/mlx5_0/ports/1/{name}"]["text"].strip(),
        )
    tree.file(f"/sys/bus/pci/devices/{port_bdf(0)}/current_link_width", "8")
    toml = "[[ports]]\ncount = 2\npcie_width = 16"
    assert bad(toml, tree) == [("BW297", "mlx5_0", "fail")]
    assert bad("[[ports]]\nnames = ['mlx5_0', 'mlx5_0:2', 'mlx5_1']", tree) == [
        ("BW293", "mlx5_1", "fail")
    ]


def test_mutes_of_other_hosts_and_none():
    mute = '[[mute]]\ncheck = "nic-mtu"\nreason = "x"\nuntil = 2020-01-01\nhost = "{host}"\n'
    assert bad(mute.format(host="gpu-1"), equipped()) == [("BW299", "nic-mtu", "warn")]
    (other,) = [
        finding
        for finding in compared(mute.format(host="gpu-2"), equipped())
        if finding.id == "BW299"
    ]
    assert (other.verdict, other.message) == (Verdict.SKIP, "the file mutes nothing on this host")


@pytest.mark.parametrize(
    ("host", "messages"),
    [
        ("", ["nic-mtu is muted until 2027-01-01: x"]),
        ("host = 'other'", ["the file mutes nothing on this host"]),
    ],
)
def test_one_finding_for_each_mute_of_this_host_or_for_none(host, messages):
    mute = f"[[mute]]\ncheck = 'nic-mtu'\nreason = 'x'\nuntil = 2027-01-01\n{host}"
    assert [
        finding.message for finding in compared(mute, equipped()) if finding.id == "BW299"
    ] == messages


@given(
    st.lists(st.integers(0, 999), min_size=1, max_size=4),
    st.lists(st.integers(0, 999), min_size=1, max_size=4),
)
def test_versions_are_ordered_by_their_numbers(low, other):
    from busbw.check.expect.inventory import version

    first, second = ".".join(map(str, low)), "-".join(map(str, other))
    assert (version(first) < version(f"{second}-generic")) == (low < other)


def test_rows_are_complete():
    for expectation in EXPECTATIONS:
        row = expectation.row
        assert all((row.title, row.right, row.why, row.fix, row.stays, row.reads)), row.name
        assert row.layer.value == "expected"


@pytest.mark.parametrize(
    ("expected", "gpus", "lose", "verdict_and_message"),
    [
        (4, 8, "", ("pass", "4 NVSwitches")),
        (5, 8, "", ("fail", "4 NVSwitches, expected 5")),
        (5, 8, "container", ("unknown", "4 NVSwitches, expected 5: this container may hide some")),
        (0, 8, "PCI", ("unknown", "0 NVSwitches, expected 0: PCI cannot be read")),
    ],
)
def test_nvswitches(expected, gpus, lose, verdict_and_message):
    tree = equipped(gpus=gpus)
    if lose == "container":
        tree.file("/.dockerenv", "")
    for path in [path for path in tree.paths if lose == "PCI" and path.startswith("/sys/bus/pci")]:
        tree.drop(path)
    (finding,) = (
        finding
        for finding in compared(f"[gpus]\nnvswitches = {expected}", tree)
        if finding.id == "BW292" and not finding.subject
    )
    assert (finding.verdict.value, finding.message) == verdict_and_message


def test_where_the_speed_of_a_link_was_read():
    findings = compared("[gpus]\npcie_gt_s = 32\n[[ports]]\npcie_gt_s = 32", equipped())
    files = {
        finding.subject: finding.evidence[0].where for finding in findings if finding.id == "BW297"
    }
    assert files["GPU 1"] == f"/sys/bus/pci/devices/{gpu_bdf(1)}/{{current,max}}_link_speed"
    assert files["mlx5_1"].endswith("/current_link_speed") and "max" not in files["mlx5_1"]


def test_the_rate_of_an_interface_that_is_down_is_ignored():
    interface = Interface("eno1", 25e9 / 8, up=True, mtu=1500, physical=True, numa=0, rdma=False)
    rates = [
        inventory.interface_rate(replace(interface, **changes))
        for changes in ({}, {"up": False}, {"rate": None})
    ]
    assert rates == [25.0, None, None]


def test_the_speeds_of_pcie_are_those_of_its_rates():
    for generation, rate in PCIE_X16.items():
        # 8b/10b; 128b/130b and flits, as the rates have it
        coding = 0.8 if generation < 3 else 63 / 64
        assert inventory.GT_S[generation] * 2e9 * coding == pytest.approx(rate, rel=0.001)
    assert len(inventory.GT_S) == len(PCIE_X16)


def test_a_gpu_of_unknown_generation_has_no_speed():
    machine = SimpleNamespace(
        host=SimpleNamespace(gpus=[TopologyGpu(0, "GPU", gpu_bdf(0), pcie_width=16)]),
        read=Tree().source().read,
    )
    assert (
        inventory.gpu_link(machine, gpu_bdf(0), 0),
        inventory.gpu_link(machine, gpu_bdf(0), 1),
    ) == ((None, 16), (None, None))


def test_a_mount_with_another_type_is_not_reported_as_read_only():
    tree = equipped()
    (finding,) = (
        finding
        for finding in compared("[[mounts]]\npath = '/raid'\ntype = 'ext4'\nwritable = true", tree)
        if finding.verdict is Verdict.FAIL
    )
    assert finding.fix.startswith("findmnt /raid")
