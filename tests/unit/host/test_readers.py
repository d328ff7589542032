"""Short readers of one fact each, on machines of a few lines."""

import json
import os
import socket
import subprocess
import time
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv4Interface
from types import SimpleNamespace

import pytest
from tree import Tree

from busbw.core.topology import Nic
from busbw.host import (
    addresses,
    cgroup,
    cpu,
    d_state,
    endpoints,
    kernel_log,
    kernel_log_past,
    link_state,
    process,
    tcp_connections,
)
from busbw.host.cpu_usage import CpuUsage
from busbw.host.endpoints import ETHERNET, Endpoint
from busbw.host.firewall import _accepts_all_from, _drops_all
from busbw.host.interfaces import read_interfaces
from busbw.host.kernel_log_past import KernelLogLine, PastLog
from busbw.host.nic import read_gids
from busbw.host.roce_qos import decoded
from busbw.host.source import LiveMachine

GID = "0000:0000:0000:0000:0000:ffff:0a01:02{:02x}"
PORT = "/sys/class/infiniband/mlx5_0/ports/1"


@pytest.mark.parametrize(
    ("available", "v2", "v1", "usable"),
    [
        ("8 kB", "", "", 8192),
        ("8 kB", "max", "", 8192),
        ("8 kB", "4096", "", 4096),
        ("8 kB", "", "4096", 4096),
        ("2 kB", "4096", "", 2048),
        ("8 kB", "0", "", 8192),  # no limit of that kind
        ("8 kB", "1", "", 1),
        ("", "4096", "", 4096),
        ("", "", "", 0),
    ],
)
def test_usable_memory_is_the_minimum_of_available_memory_and_limits(available, v2, v1, usable):
    tree = Tree().file(
        "/proc/meminfo",
        f"MemTotal: 99 kB\nMemAvailable: {available}" if available else "MemTotal: 99 kB",
    )
    for path, text in zip(cpu.LIMITS, (v2, v1), strict=True):
        if text:
            tree.file(path, text)
    assert cpu.usable_bytes(tree.source()) == usable
    total = 128 << 30
    half = min(usable or total, total) // 2
    assert cpu.usable_by_gpu(total, unified=True, source=tree.source()) == half
    assert cpu.usable_by_gpu(total, unified=False, source=tree.source()) == total


def as_outside_of_containers(tmp_path, monkeypatch):
    (tmp_path / "pid").symlink_to("pid:[4026531836]")
    monkeypatch.setattr(kernel_log, "PID_NAMESPACE", tmp_path / "pid")


@pytest.mark.parametrize(
    ("line", "killed"),
    [
        ("6,1,2,-;Out of memory: Killed process 4711 (python) total-vm:1kB", True),
        ("6,1,2,-;Memory cgroup out of memory: Killed process 4711 (python)", True),
        ("6,1,2,-;Out of memory: Killed process 471 (python)", False),
        ("6,1,2,-;Killed process 4711 (python)", False),
        ("", False),
    ],
)
def test_the_kernel_log_names_the_process_killed_for_memory(tmp_path, monkeypatch, line, killed):
    as_outside_of_containers(tmp_path, monkeypatch)
    os.mkfifo(tmp_path / "kmsg")  # as of /dev/kmsg, a read without a further record fails
    monkeypatch.setattr(kernel_log, "KMSG", tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_RDWR)
    os.write(writer, f"{line}\n".encode())
    assert kernel_log.killed(4711) is killed
    os.close(writer)
    for unreadable in (tmp_path / "missing", tmp_path):
        monkeypatch.setattr(kernel_log, "KMSG", unreadable)
        assert kernel_log.killed(4711) is None


def test_a_container_has_other_numbers_than_the_kernel_log(tmp_path, monkeypatch):
    (tmp_path / "kmsg").write_text("6,1,2,-;Out of memory: Killed process 4711 (python)")
    (tmp_path / "pid").symlink_to("pid:[4026532001]")
    monkeypatch.setattr(kernel_log, "KMSG", tmp_path / "kmsg")
    monkeypatch.setattr(kernel_log, "PID_NAMESPACE", tmp_path / "pid")
    assert kernel_log.killed(4711) is None


def test_any_record_of_the_kernel_log_names_the_killed_process(tmp_path, monkeypatch):
    as_outside_of_containers(tmp_path, monkeypatch)
    monkeypatch.setattr(kernel_log, "KMSG", tmp_path / "kmsg")
    (tmp_path / "kmsg").write_text(f"{'x' * 8192}Out of memory: Killed process 4711 (python)")
    assert kernel_log.killed(4711) is True


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("oom_killer 3\noom_kill 5\nthp 7\n", 5),
        ("thp 7\n", kernel_log.UNKNOWN),
        ("oom_kill x\n", kernel_log.UNKNOWN),
    ],
)
def test_the_kernel_counts_processes_killed_for_memory(tmp_path, monkeypatch, text, count):
    monkeypatch.setattr(kernel_log, "VMSTAT", tmp_path / "vmstat")
    assert kernel_log.count() == kernel_log.UNKNOWN
    (tmp_path / "vmstat").write_text(text)
    assert kernel_log.count() == count


def test_the_gid_table_ends_after_16_empty_entries():
    tree = Tree()
    for index in (0, 16, 32):  # 15 empty ones between them, which do not add up
        tree.file(f"{PORT}/gids/{index}", GID.format(index)).file(
            f"{PORT}/gid_attrs/types/{index}", "RoCE v2"
        )
    assert [gid.index for gid in read_gids(tree.source(), PORT)] == [0, 16, 32]
    tree.file(f"{PORT}/gids/49", GID.format(49))
    assert [gid.index for gid in read_gids(tree.source(), PORT)] == [0, 16, 32]


def test_an_endpoint_has_the_gid_of_its_address_and_of_its_port():
    tree = Tree()
    for port, kinds in (
        ("1", ("RoCE v2", "RoCE v2")),
        ("2", ("IB/RoCE v1", "IB/RoCE v1", "RoCE v2")),
    ):
        base = f"/sys/class/infiniband/mlx5_0/ports/{port}"
        for index, kind in enumerate(kinds):
            tree.file(f"{base}/gids/{index}", GID.format(1 if port == "2" else index)).file(
                f"{base}/gid_attrs/types/{index}", kind
            )
    address = IPv4Interface("10.1.2.1/24")
    for name, kind, port, index in (
        ("mlx5_0", "roce", 1, 1),
        ("mlx5_0:2", "roce", 2, 2),
        ("eth0", ETHERNET, 1, None),
    ):
        nic = Nic(name, kind=kind, rate=50e9, netdev="eth0")
        endpoint = endpoints._endpoint(tree.source(), "eth0", address, nic)
        assert (endpoint.address, endpoint.network, endpoint.rate, endpoint.kind) == (
            "10.1.2.1",
            "10.1.2.0/24",
            50e9,
            kind,
        )
        assert (endpoint.device, endpoint.port, endpoint.gid_index) == (
            "" if kind == ETHERNET else "mlx5_0",
            port,
            index,
        )
    single_endpoint = endpoints._endpoint(tree.source(), "eth0", address, None)
    assert (
        single_endpoint.kind,
        single_endpoint.rate,
        single_endpoint.device,
        single_endpoint.port,
        single_endpoint.gid_index,
    ) == (ETHERNET, None, "", 1, None)
    assert endpoints._gid_index(tree.source(), PORT, IPv4Address("10.1.2.9")) is None


def ip(*words):
    subprocess.run(["ip", *words], check=True, timeout=20)


def test_endpoints_are_the_interfaces_with_an_address(veth):
    ip("addr", "add", "198.18.77.1/30", "dev", veth)
    ip("link", "set", veth, "mtu", "1400", "up")
    tree = Tree().files(
        "/sys/class/infiniband/rxe0/ports/1",
        rate="40 Gb/sec (4X QDR)",
        link_layer="Ethernet",
        state="4: ACTIVE",
    )
    tree.link("/sys/class/infiniband/rxe0/device", "../../pci").listing(
        "/sys/class/infiniband/rxe0/device/net", veth
    )
    for _, name in socket.if_nameindex():
        tree.files(f"/sys/class/net/{name}", operstate="up")
    by_name = {endpoint.name: endpoint for endpoint in endpoints.endpoints(tree.source())}
    endpoint = Endpoint(
        name=veth,
        address="198.18.77.1",
        network="198.18.77.0/30",
        mtu=1400,
        rate=5e9,
        kind="roce",
        device="rxe0",
        port=1,
    )
    assert (by_name[veth], "lo" in by_name, f"{veth}p" in by_name) == (endpoint, False, False)
    # of another namespace, so that names say nothing
    other = tree.files("/sys/class/net/eth77", operstate="up").source()
    (endpoint,) = (endpoint for endpoint in endpoints.endpoints(other) if endpoint.name == veth)
    assert (endpoint.kind, endpoint.rate, endpoint.mtu) == (ETHERNET, None, 1400)


def test_links_that_carry_data_are_watched(veth):
    ip("addr", "add", "198.18.78.1/30", "dev", veth)
    for name in (veth, f"{veth}p"):
        ip("link", "set", name, "up")
    end = time.monotonic() + 20
    while (
        len(link_state.interfaces_with_link((veth, f"{veth}p")) & {veth, f"{veth}p"}) < 2
        and time.monotonic() < end
    ):
        time.sleep(0.01)  # the kernel reports a carrier with a delay
    assert (
        veth in link_state.interfaces_with_link()
        and f"{veth}p" not in link_state.interfaces_with_link()
    ), "the second has no address"
    assert f"{veth}p" in link_state.interfaces_with_link((f"{veth}p",))
    assert link_state.lost_links({veth}) == []
    ip("link", "set", veth, "down")
    assert link_state.lost_links({veth}) == [veth] and veth not in link_state.interfaces_with_link(
        (veth,)
    )


def test_addresses_of_interfaces():
    assert (addresses.address("lo"), addresses.address("none0"), addresses.mtu("none0")) == (
        IPv4Interface("127.0.0.1/8"),
        None,
        None,
    )


@pytest.mark.parametrize(
    ("before", "selected", "lost"),
    [
        ({"lo"}, (), []),
        ({"lo", "gone9", "gone1"}, (), []),  # deleted, as interfaces of containers are
        ({"lo", "gone9", "gone1"}, ("gone9", "gone1"), ["gone1", "gone9"]),
        (set(), ("gone9",), []),
    ],
)
def test_a_deleted_interface_is_missed_only_if_it_was_selected(before, selected, lost):
    assert link_state.lost_links(before, selected) == lost


@pytest.mark.parametrize(
    ("mode", "up", "rate", "numa"),
    [
        ("802.3ad 4", ("up", "up"), 35e9 / 8, None),
        ("active-backup 1", ("up", "up"), 25e9 / 8, None),
        ("802.3ad 4", ("up", "down"), 10e9 / 8, None),
        ("active-backup 1", ("up", "down"), 10e9 / 8, None),
    ],
)
def test_the_rate_of_a_bond(mode, up, rate, numa):
    tree = Tree().files("/sys/class/net/bond0/bonding", slaves="eth0 eth1", mode=mode)
    for index, (speed, state) in enumerate(zip((10000, 25000), up, strict=True)):
        tree.files(f"/sys/class/net/eth{index}", speed=str(speed), operstate=state).link(
            f"/sys/class/net/eth{index}/device", "../../pci"
        )
        tree.file(f"/sys/class/net/eth{index}/device/numa_node", str(index))
    interfaces = read_interfaces(tree.source())
    assert (interfaces["bond0"].rate, interfaces["bond0"].numa, interfaces["bond0"].physical) == (
        rate,
        numa,
        True,
    )
    assert [interfaces[f"eth{index}"].master for index in (0, 1)] == ["bond0", "bond0"]
    tree.file("/sys/class/net/eth1/device/numa_node", "0")
    assert read_interfaces(tree.source())["bond0"].numa == 0


@pytest.mark.parametrize(
    ("own", "mounted", "directories"),
    [
        (
            "0::/a/b",
            "/sys/fs/cgroup/a/b",
            ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"],
        ),
        (
            "5:cpu,memory:/a",
            "/sys/fs/cgroup/memory/a",
            ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"],
        ),
        (
            "5:cpu,cpuacct:/a\n4:memory:/b",
            "/sys/fs/cgroup/memory/b",
            ["/sys/fs/cgroup/memory/b", "/sys/fs/cgroup/memory"],
        ),
        ("5:cpu:/a", "/sys/fs/cgroup/memory/a", []),  # the controller of another group
        ("0::a", "/sys/fs/cgroup/a", []),
    ],
)
def test_the_directories_of_a_control_group(own, mounted, directories):
    tree = Tree().file("/proc/self/cgroup", own).listing(mounted, "tasks")
    assert cgroup.directories(tree.source(), "memory") == directories


@pytest.mark.parametrize(
    ("traffic_class", "text"),
    [
        (0, "0 (DSCP 0, no ECN)"),
        (1, "1 (DSCP 0, ECT(1))"),
        (106, "106 (DSCP 26, ECT(0))"),
        (107, "107 (DSCP 26, CE)"),
    ],
)
def test_a_traffic_class_in_words(traffic_class, text):
    assert decoded(traffic_class) == text


def lines(*texts: str) -> PastLog:
    return PastLog(lines=[KernelLogLine(at_s=1.0, text=text) for text in texts])


def test_gpus_and_cards_that_the_kernel_found_once():
    log = lines(
        "pci 0000:1b:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint",
        "nvidia 0000:1b:00.0: enabling device",
        "nvidia 0000:43:00.0: enabling device",
        "nvidia 0000:00:05.0: enabling device",  # in a virtual machine
        "nvidia 0000:43:00.4: enabling device",  # a virtual function
        "pci 0000:1c:00.0: [15b3:1021] type 00 class 0x020000",
        "pci 0000:1c:00.2: [15b3:101e] type 00 class 0x020000",  # a virtual function
        "mlx5_core 0000:9e:00.0: 252.048 Gb/s available PCIe bandwidth",
    )
    gpus, cards = kernel_log_past.gpus_seen(log), kernel_log_past.cards_seen(log)
    assert list(gpus) == ["0000:1b:00.0", "0000:43:00.0", "0000:00:05.0"]
    assert gpus["0000:1b:00.0"].text.startswith("pci ")
    assert list(cards) == ["0000:1c:00.0", "0000:9e:00.0"]


@pytest.mark.parametrize(
    ("names", "drops"),
    [
        (["drop"], True),
        (["counter", "drop"], True),
        (["match", "drop"], False),
        (["accept"], False),
        (["counter"], False),
    ],
)
def test_a_rule_that_drops_all(names, drops):
    assert _drops_all({"expr": [{name: None} for name in names]}) is drops


@pytest.mark.parametrize(
    ("verdict", "sources"),
    [
        ({"accept": None}, ["10.0.0.1"]),
        ({"jump": {"target": "filter_IN_trusted"}}, ["10.0.0.1"]),
        ({"goto": {"target": "filter_IN_trusted"}}, ["10.0.0.1"]),
        ({"jump": {"target": "filter_IN_public"}}, []),
        ({"drop": None}, []),
    ],
)
def test_packets_that_a_rule_accepts_from_a_source(verdict, sources):
    match = {
        "match": {
            "op": "==",
            "left": {"payload": {"protocol": "ip", "field": "saddr"}},
            "right": "10.0.0.1",
        }
    }
    assert _accepts_all_from({"expr": [match, verdict]}) == sources


def test_whether_a_connection_has_data():
    connection, other = socket.socketpair()
    with connection, other:
        assert tcp_connections.has_data(connection) is False
        other.send(b"x")
        assert tcp_connections.has_data(connection) is True
        connection.recv(1)
        other.close()
        assert tcp_connections.has_data(connection) is True, "its end is to be read"
    assert tcp_connections.has_data(connection) is False, "closed meanwhile"


@pytest.mark.parametrize(
    ("before", "after", "busy"),
    [
        # 80 of 110 ticks; those of guests are in the first
        ("cpu  100 0 50 800 50 0 0 0 40 0", "cpu  160 0 60 820 60 5 0 5 90 7", 727),
        ("cpu  1 0 0 2 1", "cpu  2 0 0 4 2", 250),
        ("cpu  1 0 0 2 1", "cpu  1 0 0 3 1", 0),
        ("cpu  1 0 0 2 1", "cpu  1 0 0 2 1", None),  # no tick has passed
        ("cpu  1 0 0 2", "cpu  2 0 0 4", None),
        ("intr  1 0 0 2 1", "intr  2 0 0 4 2", None),
        ("", "", None),
    ],
)
def test_the_share_of_time_that_cpus_are_busy(tmp_path, before, after, busy):
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text(f"{before}\ncpu0 9 9 9 9 9 9\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemFree: 2 kB\n")
    with ExitStack() as opened:
        system = CpuUsage(LiveMachine(tmp_path), opened)
        stat.write_text(f"{after}\ncpu0 9 9 9 9 9 9\n")
        assert system.read().values == {"mem_free": 2048} | (
            {} if busy is None else {"cpu_busy": busy}
        )
        (tmp_path / "proc/meminfo").unlink()
        assert system.read().values == {}, "no tick since"


@pytest.mark.parametrize(
    ("waits_seen", "sleeps", "stuck"),
    [
        ([[(7, "1"), (8, "4")], [(7, "1"), (8, "5")]], 11, [7]),
        ([[(7, "1")], [(7, "2")]], 1, []),
        ([[]], 0, []),
    ],
)
def test_a_process_in_the_same_wait_at_all_samples_is_stuck(monkeypatch, waits_seen, sleeps, stuck):
    waits = iter([*waits_seen, *[waits_seen[-1]] * 20])
    slept = []
    monkeypatch.setattr(d_state, "_waiting", lambda pids: next(waits))
    monkeypatch.setattr(d_state, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(d_state, "name", lambda pid: f"p{pid}")
    monkeypatch.setattr(
        d_state,
        "read_proc",
        lambda pid, file: {7: "nfs_wait", 8: "0"}[pid] if file == "wchan" else "",
    )
    assert json.loads(d_state.stuck_processes()) == [[pid, f"p{pid}", "nfs_wait"] for pid in stuck]
    assert (slept, d_state._function(8)) == ([0.25] * sleeps, "")


def test_an_ended_process_has_no_text():
    assert process.read_proc(2**22 + 1, "stat") == ""
