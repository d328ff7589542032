"""Hosts read from recordings of whole machines.

The archives of make.py are written by hand; h200x2-recorded is from a real machine (without its
boot id, kernel suffix and the other lines of meminfo).
"""

import runpy
from pathlib import Path

import msgspec
import pytest

from busbw.core.link_samples import NVLINK, PCIE, HostLink
from busbw.core.topology import Gpu, Host, Nic
from busbw.host.host_facts import read_host
from busbw.host.links import _links_of, gpu_links
from busbw.host.snapshot import Recording, parse_archive, recorded
from busbw.host.source import LiveMachine

HOSTS = Path(__file__).parents[2] / "hosts"
MADE = runpy.run_path(str(HOSTS / "make.py"))


def host(name: str) -> Host:
    return read_host(recorded(HOSTS / f"{name}.jsonl"))


@pytest.mark.parametrize("name", sorted(MADE["HOSTS"]))
def test_the_committed_archives_match_the_output_of_make(name: str) -> None:
    assert (HOSTS / f"{name}.jsonl").read_text() == MADE["archive"](name)


def test_eight_h100_with_a_400g_port_each() -> None:
    a = host("h100x8-ib")
    assert (a.hostname, a.cpus, a.memory_bytes, a.kernel) == (
        "gpu-a",
        208,
        2113390140 * 1024,
        "5.15.0-105-generic",
    )
    assert (
        a.gpu_reason == ""
        and a.driver == "550.54.15"
        and len(a.gpus) == 8
        and a.congestion == "cubic"
    )
    assert {(gpu.nvlink, gpu.nvlink_rate, gpu.pcie, gpu.sm, gpu.nvls) for gpu in a.gpus} == {
        (18, 25e9, 63e9, 90, None)
    }
    assert [gpu.bus_id for gpu in a.gpus][:2] == ["0000:1b:00.0", "0000:43:00.0"]
    assert [gpu.numa for gpu in a.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    ib = [nic for nic in a.nics if nic.kind == "ib"]
    assert [(nic.name, nic.rate, nic.netdev, nic.up) for nic in ib] == [
        (f"mlx5_{i}", 50e9, f"ib{i}", True) for i in range(8)
    ]
    assert [(nic.name, nic.rate, nic.virtual) for nic in a.nics[8:]] == [
        ("docker0", None, True),
        ("eno1", 3.125e9, False),
    ]


def test_a_roce_bond_is_one_port_with_the_sum_of_its_slaves() -> None:
    bond = Nic("mlx5_bond_0", "roce", 25e9, "bond0", 1, False, True, 1500, ["eth1", "eth2"])
    assert host("roce-bond").nics == [bond]


def test_a_machine_with_veth_only_has_ports_of_unknown_rate() -> None:
    vm = host("vm-veth")
    assert [(nic.name, nic.rate, nic.virtual) for nic in vm.nics] == [
        ("br0", None, True),
        ("veth0", None, True),
    ]
    assert (
        vm.gpus == []
        and vm.gpu_reason
        == "the Python package nvidia-ml-py is not installed; PCI shows 1 NVIDIA GPU"
    )


def test_a_lost_gpu_is_a_reason_and_no_nic_is_an_empty_list() -> None:
    lone = host("no-nic")
    assert lone.nics == [] and lone.cpus == 5
    assert [(gpu.name, gpu.nvlink, gpu.nvls, gpu.pcie) for gpu in lone.gpus] == [
        ("NVIDIA H100 PCIe", 0, False, 63e9)
    ]
    assert lone.gpu_reason == "NVML cannot read GPU 1: GPU is lost"


def test_a_real_machine_with_two_h200() -> None:
    real = host("h200x2-recorded")
    assert [(gpu.name, gpu.bus_id, gpu.nvlink, gpu.nvlink_rate, gpu.pcie) for gpu in real.gpus] == [
        ("NVIDIA H200", "0000:00:06.0", 18, 25e9, 63e9),
        ("NVIDIA H200", "0000:00:07.0", 18, 25e9, 63e9),
    ]
    links, reason = gpu_links(recorded(HOSTS / "h200x2-recorded.jsonl"))
    assert (links[0], reason) == (HostLink("GPU0 NVLink", NVLINK, 450e9, bus="0000:00:06"), "")
    assert [(link.name, link.kind, link.rate, link.bus) for link in links[1:]] == [
        ("GPU0 PCIe", PCIE, 63e9, "0000:00:06"),
        ("GPU1 NVLink", NVLINK, 450e9, "0000:00:07"),
        ("GPU1 PCIe", PCIE, 63e9, "0000:00:07"),
    ]
    assert (
        real.gpus[0].memory_bytes == 150754820096
        and real.gpus[0].numa is None
        and real.gpu_reason == ""
    )
    assert [(nic.name, nic.rate, nic.virtual, nic.up) for nic in real.nics] == [
        ("eth0", None, False, True),
        ("ifb0", None, True, False),
        ("ifb1", None, True, False),
    ]


@pytest.mark.parametrize("name", sorted(MADE["HOSTS"]))
def test_recordings_and_hosts_survive_a_round_trip(name: str) -> None:
    recording = Recording(recorded(HOSTS / f"{name}.jsonl"))
    first = read_host(recording)
    assert read_host(parse_archive(recording.archive())) == first
    assert msgspec.json.decode(msgspec.json.encode(first), type=Host) == first


def test_this_machine_reads_the_same_from_its_own_recording() -> None:
    recording = Recording(LiveMachine())
    live_host = read_host(recording)
    assert live_host.hostname and live_host.cpus > 0 and live_host.memory_bytes > 0
    assert live_host.gpus or live_host.gpu_reason, (
        "a machine without readable GPUs gives the reason"
    )
    recorded_host = read_host(parse_archive(recording.archive()))
    assert msgspec.structs.replace(recorded_host, running=live_host.running) == live_host, (
        "other processes may start between two readings"
    )


@pytest.mark.parametrize(
    ("nvlink", "rate", "links"),
    [
        (0, None, [(PCIE, 63e9)]),
        (None, None, [(NVLINK, None), (PCIE, 63e9)]),
        (18, None, [(NVLINK, None), (PCIE, 63e9)]),
    ],
)
def test_a_gpu_whose_nvlink_is_unknown_has_a_link_without_a_rate(
    nvlink: int | None, rate: float | None, links: list[object]
) -> None:
    gpu = Gpu(
        0, "H100", "0000:1b:00.0", nvlink=nvlink, nvlink_rate=rate, pcie_gen_max=5, pcie_width=16
    )
    assert [(link.kind, link.rate) for link in _links_of(gpu)] == links
