"""The kind of a machine: a container, a virtual machine, a host of virtual machines."""

import json

import pytest
from healthy import healthy
from healthy_pcie import DEVICES, gpu_bdf
from looking import found, of
from tree import Tree

from busbw.check.machine import Machine, gpus, nics, with_cpu
from busbw.core.finding import Verdict
from busbw.host.cpu import hypervisor_bit
from busbw.host.gpu import gpus_on_pci, sysfs_bus_id
from busbw.host.source import Unavailable

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)
ROOT = "1 0 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw"
BOUND = (
    "812 799 259:2 /var/lib/kubelet/pods/0a1b/etc-hosts /etc/hosts rw,relatime - ext4"
    " /dev/nvme0n1p2 rw"
)
NETNS = "340 339 259:2 /etc/netns/h1/hosts /etc/hosts rw,relatime - ext4 /dev/nvme0n1p2 rw"


@pytest.mark.parametrize(
    ("mounts", "container"),
    [
        (ROOT, False),
        ("812 799 259:2 /x /etc/hosts", True),
        ("812 799 259:2 /etc/hosts", False),
        (f"{ROOT}\n{BOUND}", True),
        (f"{ROOT}\n{NETNS}", False),
    ],
)
def test_containerd_with_control_groups_of_version_2(mounts, container):
    tree = Tree().file("/proc/1/cgroup", "0::/").file("/proc/self/mountinfo", mounts)
    assert Machine(tree.source()).container is container


@pytest.mark.parametrize(
    ("bit", "vendor", "product", "name"),
    [
        ("1", "", "", "a hypervisor"),
        ("1", "cloud-hypervisor", "", "a hypervisor"),
        ("1", "QEMU", "", "QEMU"),
        ("0", "Alibaba Cloud", "ECS bare metal", ""),
        ("0", "Supermicro", "", ""),
        ("", "QEMU", "", "QEMU"),
        ("", "", "", ""),
    ],
)
def test_hypervisor_by_the_bit_of_the_cpu_before_dmi(bit, vendor, product, name):
    tree = Tree().files("/sys/class/dmi/id", sys_vendor=vendor, product_name=product)
    tree.call("cpu hypervisor bit", bit) if bit else tree.failing("cpu hypervisor bit", "not x86")
    assert Machine(tree.source()).hypervisor == name


@pytest.mark.parametrize(("flags", "bit"), [("fpu vme hypervisor lm", "1"), ("fpu vme lm", "0")])
def test_bit_of_the_first_cpu(tmp_path, flags, bit):
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    assert hypervisor_bit(path) == bit


def test_cpu_without_flags_gives_no_hypervisor(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    with pytest.raises(Unavailable, match="no flags"):
        hypervisor_bit(path)


def test_gpus_of_virtual_machines_are_not_missing_in_nvml():
    """One GPU is passed on to a guest, and another has virtual functions for vGPUs."""
    tree = healthy(gpus=4).link(
        f"{DEVICES}/{gpu_bdf(3)}/driver", "../../../bus/pci/drivers/vfio-pci"
    )
    tree.files(f"{DEVICES}/0000:1b:00.4", vendor="0x10de", **{"class": "0x030200"}).link(
        f"{DEVICES}/0000:1b:00.4/physfn", "../0000:1b:00.0"
    )
    tree.update("nvml_health", gpus=found_gpus(tree)[:3])
    assert gpus_on_pci(tree.source()) == tuple(gpu_bdf(index) for index in range(3))
    assert "0000:1b:00.4" not in [part.device.bdf for part in gpus(Machine(tree.source()))]
    assert of(found("gpu-count", tree=tree), "").verdict is PASS


def found_gpus(tree):
    return json.loads(tree.calls["nvml_health"]["text"])["gpus"]


def test_host_that_passed_all_gpus_on_has_none():
    tree = (
        healthy(gpus=1)
        .failing("nvml_health", "Driver Not Loaded")
        .link(f"{DEVICES}/{gpu_bdf(0)}/driver", "../drivers/vfio-pci")
    )
    assert {
        finding.verdict
        for name in ("gpu-count", "gpu-mig", "nvlink-links")
        for finding in found(name, tree=tree)
    } == {SKIP}


def test_interface_of_a_port_by_its_number():
    """A card with two ports, of which neither shows its interface among its GIDs."""
    base = "/sys/class/infiniband/mlx5_0"
    tree = (
        Tree()
        .files(f"{base}/ports/1", state="4: ACTIVE")
        .files(f"{base}/ports/2", state="1: DOWN")
        .listing(f"{base}/device/net", "b0", "a1")
    )
    tree.file("/sys/class/net/b0/dev_port", "0").file("/sys/class/net/a1/dev_port", "1")
    assert [
        (port.name, port.netdev, port.active, port.roce) for port in Machine(tree.source()).ports
    ] == [("mlx5_0", "b0", True, False), ("mlx5_0:2", "a1", False, False)]


@pytest.mark.parametrize(("euid", "root"), [("0", True), ("1000", False)])
def test_reads_as_root(euid, root):
    assert Machine(Tree().call("euid", euid).source()).root is root


def test_network_card_without_rdma_has_the_name_of_its_interface():
    tree = (
        Tree()
        .files(f"{DEVICES}/0000:31:00.0", vendor="0x8086", **{"class": "0x020000"})
        .listing(f"{DEVICES}/0000:31:00.0/net", "eno1")
    )
    tree.files(f"{DEVICES}/0000:32:00.0", vendor="0x8086", **{"class": "0x020000"})
    assert [part.name for part in nics(Machine(tree.source()))] == ["eno1", "0000:32:00.0"]


def test_only_a_gpu_of_that_model_is_joined_to_its_cpu():
    tree = healthy(gpus=2)
    tree.update(
        "nvml_health", gpus=[found_gpus(tree)[0], found_gpus(tree)[1] | {"name": "NVIDIA GH200"}]
    )
    machine = Machine(tree.source())
    assert [with_cpu(machine, part) for part in gpus(machine)] == ["", "NVIDIA GH200"]


def test_gpu_has_one_name_in_all_checks():
    tree = healthy()
    tree.update("nvml_health", gpus=[gpu | {"index": gpu["index"] + 9} for gpu in found_gpus(tree)])
    assert [part.name for part in gpus(Machine(tree.source()))][2] == "GPU 11"


@pytest.mark.parametrize(
    ("nvml", "sysfs"), [("00000000:1B:00.0", "0000:1b:00.0"), ("00010000:01:00.0", "10000:01:00.0")]
)
def test_bus_ids_of_nvml_and_sysfs(nvml, sysfs):
    assert sysfs_bus_id(nvml) == sysfs
