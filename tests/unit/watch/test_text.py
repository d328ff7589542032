"""An interval of a watch as a table, as JSON, and as rdma_monitor's text."""

import json
import os
import time

import pytest

from busbw.core.finding import Verdict
from busbw.core.link_samples import (
    ETHERNET,
    IB,
    NVLINK,
    ROCE,
    LinkFinding,
    LinkFlow,
    SlaveFlow,
    WatchInterval,
)
from busbw.watch import text as watch_text
from busbw.watch.text import line, screen, table

AT = "2022-02-18T01:48:59.123+00:00"
PORT = LinkFlow(
    name="mlx5_0",
    kind=ROCE,
    rate=50e9,
    tx=47.5e9,
    rx=0.0,
    tx_pause=0.0,
    rx_pause=0.123,
    cnp_sent=0.0,
    cnp_handled=4632.0,
    ecn_marked=0.0,
    lost=0.25,
    dropped=0.0,
)
SAID = LinkFinding(
    "mlx5_0",
    "pcie-limit",
    Verdict.WARN,
    "the receiver's PCIe is the limit",
    "outbound_pci_stalled_wr 45 %",
)


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "CST-8")
    time.tzset()
    yield
    monkeypatch.undo()
    os.environ.setdefault("TZ", "UTC")
    time.tzset()


def watched(*links: LinkFlow, **fields) -> WatchInterval:
    return WatchInterval(**{"host": "h1", "at": AT, "seconds": 1.0, "links": list(links)} | fields)


def test_table_of_a_port_with_its_findings():
    text = table(watched(PORT, findings=[SAID], missed=2, tcp={"RetransSegs": 3.0}))
    assert text.splitlines() == [
        "h1  2022-02-18 09:48:59.123  1.00 s  2 missed  TCP retransmits 3/s",
        (
            "link    rate (GB/s)  sent (GB/s)     %  received (GB/s)    %  pause in (%)  pause out"
            " (%)  CNP in (/s)  CNP out (/s)  ECN (/s)  lost (/s)  drops (/s)"
        ),
        (
            "mlx5_0        50.00        47.50  95.0             0.00  0.0          12.3           "
            " 0.0        4,632             0         0       0.25           0"
        ),
        (
            "WARN  mlx5_0: the receiver's PCIe is the limit: outbound_pci_stalled_wr 45 % "
            " [pcie-limit]"
        ),
    ]


def test_columns_that_no_link_has_are_left_out():
    head = table(watched(LinkFlow(name="eth0", kind=ETHERNET, tx=1e9, rx=2e9))).splitlines()[1]
    assert head.split() == ["link", "sent", "(GB/s)", "received", "(GB/s)"]


def test_a_value_that_a_link_lacks_is_a_dash():
    last = table(
        watched(PORT, LinkFlow(name="GPU0 NVLink", kind=NVLINK, state="gone"))
    ).splitlines()[-1]
    assert last.split() == ["GPU0", "NVLink", *["-"] * 12, "gone"]


def test_narrow_terminals_lose_columns_and_no_link():
    lines = table(watched(PORT, findings=[SAID]), 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[2].startswith("mlx5_0") and "pause" not in lines[1]


def test_intervals_below_a_second_are_in_milliseconds():
    assert "  100 ms" in table(watched(PORT, seconds=0.1)).splitlines()[0]


def test_screen_fits_the_height_of_the_terminal():
    text = screen(watched(*[PORT] * 40, unread=["no GPU"]), 80, 20)
    assert text.count("\n") == 19 and "more lines: a larger window shows them" in text
    assert "note: no GPU" in screen(watched(PORT, unread=["no GPU"]), 80, 20)


def test_json_is_one_line_without_unknown_values():
    text = line(watched(PORT, LinkFlow(name="eth0", kind=ETHERNET), findings=[SAID]))
    assert text.endswith(b"\n") and text.count(b"\n") == 1
    document = json.loads(text)
    assert document["schema"] == "busbw.watch/1"
    assert document["links"][0]["rx_pause"] == 0.123 and document["links"][1] == {
        "name": "eth0",
        "kind": "ethernet",
    }
    assert document["said"][0] == {
        "link": "mlx5_0",
        "pattern": "pcie-limit",
        "verdict": "warn",
        "message": SAID.message,
        "seen": SAID.seen,
    }


SEED = """------
2022-2-18 09:48:59 CST
tx_rate: 81.874 (40.923/40.951)
rx_rate: 0.092 (0.055/0.037)
tx_pause: 0 (0/0)
rx_pause: 0 (0/0)
tx_pause_duration: 0 (0/0)
rx_pause_duration: 0 (0/0)
np_cnp_sent: 0
rp_cnp_handled: 4632
num_of_qp: 22
np_ecn_marked: 0
rp_cnp_ignored: 0
out_of_buffer: 0
out_of_seq: 0
packet_seq_err: 0
tx_rate_prio0: 0.000 (0.000/0.000)
rx_rate_prio0: 0.000 (0.000/0.000)
tcp_segs_retrans: 0
tcp_retrans_rate: 0
cpu_usage: 0.35%
free_mem: 1049633300 kB
------
"""
PAUSES = {
    f"{direction}_prio{number}_{counter}": 0.0
    for direction in ("tx", "rx")
    for number in range(8)
    for counter in ("pause", "pause_duration", "bytes")
}
HARDWARE = {
    "np_cnp_sent": 0.0,
    "rp_cnp_handled": 4632.0,
    "np_ecn_marked_roce_packets": 0.0,
    "rp_cnp_ignored": 0.0,
    "out_of_buffer": 0.0,
    "out_of_sequence": 0.0,
    "packet_seq_err": 0.0,
    "num_of_qp": 22,
}


def bond(**counters: float) -> LinkFlow:
    gbit = 1e9 / 8
    slaves = (
        SlaveFlow("eth1", 40.923 * gbit, 0.055 * gbit, PAUSES),
        SlaveFlow("eth2", 40.951 * gbit, 0.037 * gbit, PAUSES | counters),
    )
    return LinkFlow(
        name="mlx5_bond_0",
        kind=ROCE,
        tx=81.874 * gbit,
        rx=0.092 * gbit,
        bond="bond0",
        slaves=slaves,
        counters=PAUSES | HARDWARE | counters,
    )


def test_text_of_rdma_monitor_to_the_letter():
    host = {
        "tcp": {"RetransSegs": 0.0, "OutSegs": 5000.0},
        "cpu": 0.0035,
        "free_memory_bytes": 1049633300 * 1024,
    }
    assert watch_text.text(watched(bond(), **host), first=True) == SEED


def test_counts_of_rdma_monitor_are_of_the_interval():
    text = watch_text.text(
        watched(
            bond(rx_prio3_pause_duration=1000.0),
            seconds=0.5,
            tcp={"RetransSegs": 4.0, "OutSegs": 8.0},
        ),
        first=False,
    )
    assert "\nrx_pause_duration: 500 (0/500)\n" in text and "\nrp_cnp_handled: 2316\n" in text
    assert "\ntcp_segs_retrans: 2\ntcp_retrans_rate: 0.5\n" in text and not text.startswith(
        "------"
    )
    assert "\nnum_of_qp: 22\n" in text, "a level"


def test_pauses_of_the_whole_link_where_no_priority_has_any():
    text = watch_text.text(
        watched(LinkFlow(name="mlx5_0", kind=IB, counters=PAUSES | {"rx_pause_ctrl_phy": 7.0})),
        first=False,
    )
    assert "\nrx_pause: 7\n" in text and "\ntx_pause: 0\n" in text


def test_several_ports_are_named_and_unknown_values_are_dashes():
    text = watch_text.text(
        watched(bond(), LinkFlow(name="mlx5_2", kind=IB), LinkFlow(name="GPU0 PCIe", kind="pcie")),
        first=True,
    )
    assert "\ninterface: bond0 (eth1/eth2)\ntx_rate: 81.874" in text
    assert "\ninterface: mlx5_2\ntx_rate: -\nrx_rate: -\ntx_pause: -\n" in text
    assert "GPU0" not in text and "cpu_usage: -\nfree_mem: -\n" in text
