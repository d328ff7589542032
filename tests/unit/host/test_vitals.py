"""Repeated readings of a host: trees of files that change between readings, the real machine,
and a log that grows.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import pytest

from busbw.core.result import RankDevice
from busbw.core.telemetry import TCP, GpuReading, XidEvent, change
from busbw.host.host_vitals import GpuVitals, Vitals, _merge
from busbw.host.kernel_log import KernelLog, xids
from busbw.host.port_counters import device_counters, snmp
from busbw.host.snapshot import parse_archive, recorded
from busbw.host.source import LiveMachine, Reading

DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0: {rx}  9 1 2 3 0 0 0 {tx} 9 4 5 0 0 0 0
  eth1:0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
"""
NETSTAT = (
    "TcpExt: ListenDrops TCPTimeouts TCPLossProbes\n"
    "TcpExt: 0 {timeouts} 7\n"
    "IpExt: InOctets\n"
    "IpExt: 12\n"
)
SNMP = "Ip: Forwarding\nIp: 2\nTcp: MaxConn RetransSegs\nTcp: -1 {retrans}\nUdp: InErrors\nUdp: 5\n"
HW = "sys/class/infiniband/mlx5_0/ports/1"


def write(
    root: Path,
    *,
    tx: int = 0,
    retrans: int = 0,
    seq: int = 0,
    data: int = 0,
    downs: int = 0,
    timeouts: int = 0,
) -> None:
    files = {
        "proc/net/dev": DEV.format(rx=tx // 2, tx=tx),
        "proc/net/netstat": NETSTAT.format(timeouts=timeouts),
        "proc/net/snmp": SNMP.format(retrans=retrans),
        f"{HW}/hw_counters/packet_seq_err": f"{seq}\n",
        f"{HW}/counters/port_xmit_data": f"{data}\n",
        f"{HW}/counters/symbol_error": "N/A (no PMA)\n",
        "sys/class/net/eth0/carrier_down_count": f"{downs}\n",
        "sys/class/net/eth1/carrier_down_count": "0\n",
        "sys/class/net/lo/carrier_down_count": "0\n",
    }
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path, tx=1000, retrans=5, seq=(1 << 32) - 2, data=100, downs=1)
    return tmp_path


CPU = [RankDevice(0, 1, "h1", 0, "", "CPU")]
GPU = [RankDevice(0, 1, "h1", 0, "0000:1b:00", "GPU")]


def test_a_change_between_two_readings_of_a_tree(tree: Path) -> None:
    with closing(Vitals(CPU, LiveMachine(tree))) as vitals:
        before = vitals.read()
        write(tree, tx=51000, retrans=1528, seq=3, data=350, downs=2, timeouts=4)
        changed = change(before, vitals.read())
    assert (changed.host, changed.unread) == ("h1", [])
    assert (changed.sent, changed.received) == ({"eth0": 50000, "mlx5_0": 1000}, {"eth0": 25000})
    assert changed.moved == {
        "eth0": {"carrier_down_count": 1},
        "mlx5_0": {"packet_seq_err": 5},
        TCP: {"RetransSegs": 1523, "TCPTimeouts": 4},
    }


def test_only_requested_ports_are_read(tree: Path) -> None:
    (tree / "sys/class/infiniband/mlx5_1/ports/1").mkdir(parents=True)
    (tree / "sys/class/infiniband/mlx5_1/ports/2/counters").mkdir(parents=True)
    (tree / "sys/class/infiniband/mlx5_1/ports/2/counters/symbol_error").write_text("3\n")
    with closing(Vitals(CPU, LiveMachine(tree))) as vitals:
        reading = vitals.read()
    assert sorted(reading.counters) == ["eth0", "eth1", "mlx5_0", "mlx5_1:2", TCP]
    assert reading.unread == []
    assert "symbol_error" not in reading.counters["mlx5_0"], "text that is not a number is unknown"


def test_sysfs_of_another_network_namespace_is_ignored(tree: Path) -> None:
    (tree / "sys/class/net/veth7").mkdir()
    with closing(Vitals(CPU, LiveMachine(tree))) as vitals:
        assert "carrier_down_count" not in vitals.read().counters["eth0"]


def test_a_machine_without_any_files_gives_empty_readings(tmp_path: Path) -> None:
    with closing(Vitals(GPU, LiveMachine(tmp_path))) as vitals:
        reading = vitals.read()
        after = vitals.read()
    assert (reading.counters, reading.events) == ({}, [])
    assert "tcp: /proc/net/snmp or /proc/net/netstat cannot be read" in reading.unread
    assert "/dev/kmsg: no such file or directory" in reading.unread
    assert (
        any("NVML" in reason or "nvidia-ml-py" in reason for reason in reading.unread)
        or reading.gpus
    )
    assert change(reading, after).moved == {}


def test_a_file_that_goes_away_is_absent_from_the_next_reading(tmp_path: Path) -> None:
    entries = [
        {"schema": "busbw.host/1"},
        {"path": "/proc/net/dev", "text": DEV.format(rx=1, tx=2)},
    ]
    with closing(Vitals(CPU, parse_archive("\n".join(map(json.dumps, entries))))) as vitals:
        reading = vitals.read()
    assert reading.counters["eth0"]["tx_bytes"] == 2 and "lo" not in reading.counters
    assert reading.counters["eth0"] == {
        "rx_bytes": 1,
        "rx_errors": 1,
        "rx_dropped": 2,
        "rx_fifo_errors": 3,
        "tx_bytes": 2,
        "tx_errors": 4,
        "tx_dropped": 5,
    }


def test_nvml_is_asked_no_more_often_than_its_share() -> None:
    readings: list[int] = []

    class Slow(LiveMachine):
        def call(self, name: str, live: Callable[[], str]) -> Reading:
            readings.append(1)
            time.sleep(0.002)
            return Reading(
                msgspec.json.encode(
                    GpuVitals([GpuReading("0000:1b:00", temperature_c=len(readings))])
                )
            )

    with closing(Vitals(GPU, Slow(), gpu_share=1e-4)) as vitals:
        first, second = vitals.read(), vitals.read()
        assert not vitals.gpus_due
    assert (len(readings), first.gpus) == (1, second.gpus)
    with closing(Vitals(GPU, Slow())) as vitals:
        assert vitals.read().gpus != vitals.read().gpus


def test_gpus_of_a_recording_come_from_nvmls_recorded_answers(tree: Path) -> None:
    answer = {
        "gpus": [{"bus": "0000:1b:00", "sm_mhz": 1410, "reasons": 64}],
        "events": [{"bus": "0000:1b:00", "number": 79}],
    }
    (tree / "calls").mkdir()
    (tree / "calls/nvml_vitals").write_text(json.dumps(answer))
    with closing(Vitals(GPU, recorded(tree))) as vitals:
        reading = vitals.read()
    assert (reading.gpus[0].sm_mhz, reading.gpus[0].power_w, reading.events) == (
        1410,
        None,
        [XidEvent("0000:1b:00", 79)],
    )


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "dev/kmsg"
    file.parent.mkdir()
    file.write_text("4,1,0,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=old\n")
    yield file


def test_errors_logged_after_opening_are_reported_once(log: Path) -> None:
    with ExitStack() as opened:
        kernel_log = KernelLog(LiveMachine(log.parent.parent), opened)
        assert (kernel_log.reason, kernel_log.read()) == ("", [])
        with log.open("a") as file:
            for pid in (7, 8):
                file.write(
                    f"4,2,9,-;NVRM: Xid (PCI:0000:9d:00): 74, pid={pid}, name=python, NVLink: fatal"
                    " error\n"
                )
            file.write(
                "4,4,9,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Fatal, Link 27\n"
                "6,5,9,-;usb 1-1: new device\n"
            )
        assert kernel_log.read() == [
            XidEvent("0000:9d:00", 74, 2),
            XidEvent("0000:c1:00", 22013, 1, switch=True),
        ]
        assert kernel_log.read() == []


def test_old_log_lines_are_skipped_and_old_formats_parsed() -> None:
    assert xids("NVRM: Xid (0000:03:00): 14, Channel 00000001") == [XidEvent("0000:03:00", 14)]
    assert xids("NVRM: GPU at PCI:0000:03:00: GPU-b850f46d") == []


def test_the_real_log_is_followed_or_gives_a_reason() -> None:
    with ExitStack() as opened:
        kernel_log = KernelLog(LiveMachine(), opened)
        assert kernel_log.read() == [] or kernel_log.reason == ""
        assert kernel_log.reason == "" or kernel_log.reason.startswith("/dev/kmsg: ")


def test_this_machine_is_read_fast_and_shows_traffic() -> None:
    with closing(Vitals(CPU)) as vitals:
        before = vitals.read()
        assert TCP in before.counters and "RetransSegs" in before.counters[TCP]
        start = time.process_time()
        readings = [vitals.read() for _ in range(50)]
        mean_s = (time.process_time() - start) / 50
    assert change(before, readings[-1]).seconds > 0
    assert mean_s < 0.02, "a reading takes too long"


def test_malformed_tables_give_no_counters() -> None:
    assert device_counters(b"nonsense\n eth0: 1 2 3\n eth1: a b\n") == {}
    assert snmp(b"Tcp: A B\nTcp: 1\nTcpExt: A\n") == {}
    assert snmp(b"Tcp: A B\nTcpExt: 1 2\n") == {}
    assert snmp(b"Tcp: A B\nTcp: 1 x\n") == {"A": 1}


def test_a_table_longer_than_a_page_is_read_to_its_end(tmp_path: Path) -> None:
    lines = "".join(
        f"veth{number:04}: 1 0 0 0 0 0 0 0 {number} 0 0 0 0 0 0 0\n" for number in range(3000)
    )
    write(tmp_path)
    (tmp_path / "proc/net/dev").write_text(lines)
    assert len(lines) > 1 << 16
    with closing(Vitals(CPU, LiveMachine(tmp_path))) as vitals:
        assert vitals.read().counters["veth2999"]["tx_bytes"] == 2999


def test_an_error_that_nvml_and_the_log_report_counts_once() -> None:
    nvml = [XidEvent("0000:1b:00", 79, 2), XidEvent("0000:1b:00", 31, 1)]
    logged = [
        XidEvent("0000:1b:00", 79, 1),
        XidEvent("0000:1b:00", 31, 3),
        XidEvent("0000:c1:00", 31, 1, switch=True),
    ]
    assert _merge(nvml, logged) == [
        XidEvent("0000:1b:00", 79, 2),
        XidEvent("0000:1b:00", 31, 3),
        logged[2],
    ]
    assert _merge(nvml, nvml) == nvml
