"""Readings of built trees of files: ports that come and go, values that are not read too often,
and what cannot be read.
"""

import shutil
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from healthy import healthy
from tree import Tree

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.link_samples import HOST, IB, ROCE, CounterGroup, HostLink, HostSample
from busbw.core.telemetry import TCP
from busbw.host import link_counters as traffic_of_host
from busbw.host import rdma_ports
from busbw.host.link_counters import LinkCounters
from busbw.host.links import matches, network_links
from busbw.host.rdma_ports import PortFiles
from busbw.host.snapshot import recorded
from busbw.host.source import LiveMachine, Unavailable

HOSTS = Path(__file__).parents[2] / "hosts"
HEAD = "Inter-|   Receive  |  Transmit\n face |bytes ...\n"
DEV = "  {name}: {rx} 0 0 0 0 0 0 0 {tx} 0 0 0 0 0 0 0\n"


def write(root: Path, files: dict[str, object]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def devices(root: Path, *names: str, tx: int = 0) -> None:
    """/proc/net/dev, and the same interfaces in /sys."""
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    (root / "proc/net/dev").write_text(
        HEAD + "".join(DEV.format(name=name, rx=0, tx=tx) for name in ("lo", *names))
    )
    for name in ("lo", *names):
        write(
            root / "sys/class/net" / name, {"operstate": "up", "carrier_down_count": 1, "mtu": 1500}
        )


def port(root: Path, device: str, **values: int) -> Path:
    """An InfiniBand port; values are of hw_counters, or of counters for those of the port."""
    base = root / f"sys/class/infiniband/{device}"
    write(base, {"device/numa_node": 0})
    return write(
        base / "ports/1",
        {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "link_layer": "InfiniBand",
            "rate": "400 Gb/sec (4X NDR)",
        }
        | {
            f"{'counters' if name.startswith('port_') else 'hw_counters'}/{name}": value
            for name, value in values.items()
        },
    )


@pytest.fixture
def host(tmp_path: Path) -> Path:
    devices(tmp_path)
    port(tmp_path, "mlx5_0", port_xmit_data=7, packet_seq_err=3, lifespan=10)
    return tmp_path


def traffic(root: Path, *groups: str, **fields) -> LinkCounters:
    return LinkCounters(LiveMachine(root), groups, gpus=False, **fields)


def values(sample: HostSample, subject: str) -> dict[str, int]:
    return {
        name: value
        for (owner, _), group in sample.groups.items()
        if owner == subject
        for name, value in group.values.items()
    }


def test_counters_of_a_port_and_its_state_are_read_from_open_files(host):
    with closing(traffic(host)) as reader:
        sample = reader.read()
        port(host, "mlx5_0", port_xmit_data=9)
        later = reader.read()
    assert sample.links == (HostLink("mlx5_0", IB, 50e9, device="mlx5_0", port="1"),)
    assert values(sample, "mlx5_0") == {
        "port_xmit_data": 7,
        "packet_seq_err": 3,
        "state": 4,
        "phys_state": 5,
    }
    assert sample.unread == ()
    assert values(later, "mlx5_0")["port_xmit_data"] == 9


def test_hardware_counters_are_read_once_in_their_lifespan(host, monkeypatch):
    port(host, "mlx5_0", lifespan=300)
    times = [7.0, 7.299, 7.3001]
    monkeypatch.setattr(rdma_ports, "time", SimpleNamespace(monotonic=lambda: times[0]))
    readings = []
    with closing(traffic(host)) as reader:
        for _ in range(3):
            groups = reader.read().groups
            readings.append(
                (groups["mlx5_0", "counters"].at_s, groups["mlx5_0", "hw_counters"].at_s)
            )
            times.append(times.pop(0))
    assert readings == [(7.0, 7.0), (7.299, 7.0), (7.3001, 7.3001)], (
        "the kernel would repeat them; others are read each time"
    )


def test_hardware_counters_without_a_lifespan_are_read_each_time(host, monkeypatch):
    (host / "sys/class/infiniband/mlx5_0/ports/1/hw_counters/lifespan").unlink()
    monkeypatch.setattr(rdma_ports, "time", SimpleNamespace(monotonic=lambda: 7.0))
    with closing(traffic(host)) as reader:
        reader.read()
        port(host, "mlx5_0", packet_seq_err=4)
        assert values(reader.read(), "mlx5_0")["packet_seq_err"] == 4


def test_a_port_is_unplugged_and_comes_back(host):
    port(host, "mlx5_1", port_xmit_data=5)
    with closing(traffic(host)) as reader:
        first = reader.read()
        shutil.rmtree(host / "sys/class/infiniband/mlx5_1")
        second = reader.read()
        port(host, "mlx5_1", port_xmit_data=6)
        third = reader.read()
    assert [[link.name for link in sample.links] for sample in (first, second, third)] == [
        ["mlx5_0", "mlx5_1"],
        ["mlx5_0"],
        ["mlx5_0", "mlx5_1"],
    ]
    identities = [sample.groups["mlx5_1", "counters"].identity for sample in (first, third)]
    assert identities[0] != identities[1], "its counters begin anew"
    port_identities = [
        sample.groups["mlx5_0", "counters"].identity for sample in (first, second, third)
    ]
    assert len(set(port_identities)) == 1, "those of the other port go on"


def test_interfaces_without_rdma_have_the_kernels_counters(tmp_path):
    devices(tmp_path, "eth0", tx=500)
    with closing(traffic(tmp_path)) as reader:
        sample = reader.read()
    assert [link.name for link in sample.links] == ["eth0"]
    counters = values(sample, "eth0")
    assert (counters["tx_bytes"], counters["operational"], counters["carrier_down_count"]) == (
        500,
        1,
        1,
    )


def test_tcp_segments_and_those_sent_again_are_counted(host):
    write(host / "proc/net", {"snmp": "Tcp: InSegs OutSegs RetransSegs InErrs\nTcp: 5 6 7 8"})
    with closing(traffic(host)) as reader:
        sample = reader.read()
    assert values(sample, TCP) == {"OutSegs": 6, "RetransSegs": 7}


def test_interfaces_of_another_namespace_are_not_mixed_up(tmp_path):
    devices(tmp_path, "eth0")
    write(tmp_path / "sys/class/net/elsewhere", {"speed": 400000})
    with closing(traffic(tmp_path)) as reader:
        (link,) = reader.read().links
    assert (link.name, link.rate) == ("eth0", None), (
        "/sys shows other interfaces: nothing there belongs to this one"
    )


def test_interfaces_of_another_namespace_come_after_hardware(host):
    assert [link.name for link in network_links(LiveMachine(host), ["lo", "eth9"])] == ["mlx5_0"]
    shutil.rmtree(host / "sys/class/infiniband")
    assert network_links(LiveMachine(host), ["lo", "eth9"]) == [
        HostLink("eth9", "ethernet", interfaces=("eth9",))
    ]
    write(
        host / "sys/class/net",
        {"veth1/operstate": "up", "eth0/operstate": "up", "eth0/device/vendor": "0x15b3"},
    )
    assert [link.name for link in network_links(LiveMachine(host), ["lo", "veth1", "eth0"])] == [
        "eth0"
    ]


def test_only_selected_ports_are_read(host):
    port(host, "mlx5_1", port_xmit_data=5)
    with closing(traffic(host, "mlx5_1")) as reader:
        assert [link.name for link in reader.read().links] == ["mlx5_1"]


def test_an_unknown_port_is_an_error_that_lists_the_ports(host):
    with pytest.raises(UsageError, match="--port mlx5_7: no such port here") as raised:
        traffic(host, "mlx5_7")
    # this machine's GPUs may follow
    assert raised.value.hint.split(", ")[0] == "the ports are mlx5_0"


def test_a_host_without_links_is_an_error(tmp_path):
    devices(tmp_path)
    with pytest.raises(NoMeasurement, match="no link to watch"):
        traffic(tmp_path)


def test_missing_counters_are_named_with_the_reason(tmp_path):
    devices(tmp_path)
    base = port(tmp_path, "efa_0")
    (base / "hw_counters/tx_bytes").mkdir(parents=True)  # unreadable, also for root
    with closing(traffic(tmp_path)) as reader:
        assert reader.read().unread == ("efa_0: its driver has no counters",)
    write(base, {"counters/port_xmit_data": 1})
    with closing(traffic(tmp_path)) as reader:
        (reason,) = reader.read().unread
    assert (
        reason
        == "efa_0: no hw_counters: /sys/class/infiniband/efa_0/ports/1/hw_counters/tx_bytes: is a"
        " directory"
    )


def test_text_in_place_of_a_number_is_not_a_counter(host):
    write(host / "sys/class/infiniband/mlx5_0/ports/1/counters", {"symbol_error": "N/A (no PMA)"})
    with closing(traffic(host)) as reader:
        assert "symbol_error" not in values(reader.read(), "mlx5_0")


def test_a_port_whose_files_all_fail_is_lost():
    tree = Tree().file("/p/counters/port_xmit_data", "5")
    files = PortFiles(tree.source(), "/p", 1)
    assert files.read()["counters"].values == {"port_xmit_data": 5} and not files.lost
    files._port = [("port_xmit_data", lambda: None)]
    assert files.read() == {} and files.lost


def test_cpu_and_memory_are_read_where_asked(host):
    write(host / "proc", {"stat": "cpu  10 0 0 90 0 0 0 0 0 0", "meminfo": "MemFree: 4 kB"})
    with closing(traffic(host, system=True)) as reader:
        first = reader.read()
        write(host / "proc", {"stat": "cpu  40 0 0 160 0 0 0 0 0 0"})
        second = reader.read()
    assert values(first, HOST) == {"mem_free": 4096}, "no time has passed"
    assert values(second, HOST) == {"mem_free": 4096, "cpu_busy": 300}


def test_counters_of_the_wire_of_a_recorded_port():
    tree = healthy(gpus=0, ports=1)
    tree.file(
        "/proc/net/dev",
        HEAD + DEV.format(name="eth0", rx=1, tx=2) + DEV.format(name="eno1", rx=1, tx=2),
    )
    tree.call(
        "ethtool -S eth0", '{"tx_bytes_phy": 9, "rx_prio3_pause_duration": 4, "rx1_cache_reuse": 5}'
    )
    with closing(LinkCounters(tree.source(), ["mlx5_0"], gpus=False)) as reader:
        sample = reader.read()
    assert sample.links == (HostLink("mlx5_0", ROCE, 50e9, ("eth0",), device="mlx5_0", port="1"),)
    assert sample.groups["eth0", "ethtool"].values == {
        "tx_bytes_phy": 9,
        "rx_prio3_pause_duration": 4,
    }


def test_a_bond_has_the_counters_of_its_slaves():
    source = recorded(HOSTS / "roce-bond.jsonl")
    links = network_links(source, source.names("/sys/class/net"))
    bond = next(link for link in links if link.bond)
    assert len(bond.interfaces) == 2 and bond.rate
    assert all(
        matches(bond, [name]) for name in (bond.name, bond.bond, *bond.interfaces)
    ) and not matches(bond, ["eth99"])


def test_devices_of_single_slaves_have_the_counters_of_their_own(tmp_path):
    devices(tmp_path, "bond0", "eth1", "eth2")
    write(tmp_path / "sys/class/net/bond0/bonding", {"slaves": "eth1 eth2", "mode": "802.3ad 4"})
    for number in (1, 2):
        base = port(tmp_path, f"mlx5_{number}", port_xmit_data=7)
        write(base, {"link_layer": "Ethernet", "gid_attrs/ndevs/0": f"eth{number}"})
        write(base.parents[1], {f"device/net/eth{number}/mtu": 1500})
    links = {
        link.device: link.interfaces
        for link in network_links(LiveMachine(tmp_path), ("lo", "bond0", "eth1", "eth2"))
        if link.device
    }
    assert links == {"mlx5_1": ("eth1",), "mlx5_2": ("eth2",)}


class Nvml:
    """In place of GpuTraffic: two GPUs, of which the second has no NVLink counters; counts how
    often errors are asked for.
    """

    error_reads = 0

    def traffic(self):
        first = {"nvlink_tx": 5, "pcie_rx": 6, "pcie_gen": 5}
        return {"0000:00:06": (3.0, first), "0000:00:07": (3.5, {"pcie_rx": 7})}

    def errors(self):
        self.error_reads += 1
        return {"0000:00:06": (self.error_reads, {"nvlink_replay": self.error_reads})}

    def close(self):
        self.error_reads = -1


def test_links_of_gpus_have_their_own_counters_and_errors_seldom(monkeypatch):
    nvml, times = Nvml(), iter([100.0, 104.9, 105.0])
    monkeypatch.setattr(traffic_of_host, "GpuTraffic", lambda: nvml)
    monkeypatch.setattr(traffic_of_host, "time", SimpleNamespace(monotonic=lambda: next(times)))
    gpus = traffic_of_host._Gpus(recorded(HOSTS / "h200x2-recorded.jsonl"), (), 5.0)
    assert [link.name for link in gpus.links] == [
        "GPU0 NVLink",
        "GPU0 PCIe",
        "GPU1 NVLink",
        "GPU1 PCIe",
    ]
    first, second, third = (gpus.read() for _ in range(3))
    assert first == {
        ("GPU0 NVLink", "traffic"): CounterGroup(3.0, 0, {"nvlink_tx": 5}),
        ("GPU0 PCIe", "traffic"): CounterGroup(3.0, 0, {"pcie_rx": 6, "pcie_gen": 5}),
        ("GPU1 PCIe", "traffic"): CounterGroup(3.5, 0, {"pcie_rx": 7}),
        ("GPU0 NVLink", "errors"): CounterGroup(1, 0, {"nvlink_replay": 1}),
    }
    assert (second, third["GPU0 NVLink", "errors"].values) == (first, {"nvlink_replay": 2})
    gpus.close()
    assert nvml.error_reads == -1
    chosen = traffic_of_host._Gpus(recorded(HOSTS / "h200x2-recorded.jsonl"), ("GPU1 PCIe",), 5.0)
    assert [link.name for link in chosen.links] == ["GPU1 PCIe"]


def test_gpus_without_nvml_have_a_reason(monkeypatch):
    def refuse():
        raise Unavailable("no driver")

    monkeypatch.setattr(traffic_of_host, "GpuTraffic", refuse)
    gpus = traffic_of_host._Gpus(recorded(HOSTS / "h200x2-recorded.jsonl"), (), 5.0)
    assert (gpus.reason, gpus.read()) == ("no driver", {})
    gpus.close()


def test_queue_pairs_are_asked_for_once_a_second(monkeypatch):
    links = [HostLink("mlx5_0", IB, device="mlx5_0"), HostLink("mlx5_1", IB, device="mlx5_1")]
    times, queries = iter([10.0, 10.9, 11.0, 99.0, 999.0]), []

    def count():
        queries.append(1)
        if len(queries) == 3:
            raise Unavailable("no RDMA")
        return {"mlx5_0": len(queries)}

    monkeypatch.setattr(traffic_of_host, "queue_pairs", count)
    monkeypatch.setattr(traffic_of_host, "time", SimpleNamespace(monotonic=lambda: next(times)))
    pairs = traffic_of_host._QueuePairs()
    groups = [pairs.read(links) for _ in range(5)]
    group = {("mlx5_0", "resources"): CounterGroup(10.0, 0, {"num_of_qp": 1})}
    assert groups == [
        group,
        group,
        {("mlx5_0", "resources"): CounterGroup(11.0, 0, {"num_of_qp": 2})},
        {},
        {},
    ]
    assert len(queries) == 3, "a kernel without an answer is not asked again"


@pytest.mark.parametrize(
    ("text", "state"), [("up", 1), ("down", 0), ("lowerlayerdown", 0), ("unknown", None)]
)
def test_whether_an_interface_is_up(text, state):
    assert traffic_of_host._operational(lambda: f"{text}\n".encode()) == state
    assert traffic_of_host._operational(lambda: None) is traffic_of_host._operational(None) is None


def test_links_that_hang_are_left_out_and_each_is_noted_before_it_is_read(host):
    port(host, "mlx5_1", port_xmit_data=7)
    noted = []
    with closing(
        LinkCounters(
            LiveMachine(host), (), gpus=False, system=True, without=("mlx5_0",), note=noted.append
        )
    ) as reader:
        assert [link.name for link in reader.read().links] == ["mlx5_1"]
    assert noted[0] == "NVML" and "mlx5_1" in noted and "mlx5_0" not in noted
