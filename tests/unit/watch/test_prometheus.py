"""The exporter's page, as Prometheus' own parser reads it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import parser

from busbw.core.finding import Verdict
from busbw.core.link_samples import ETHERNET, HOST, IB, NVLINK, PCIE, Exposition, Link, LinkFinding
from busbw.core.telemetry import TCP
from busbw.core.watch_counters import BY_ETHTOOL, BY_NAME, LEVELS, ON_PORT
from busbw.watch import prometheus

ROOT = Path(__file__).parents[3]
PORT = Link("mlx5_0:2", IB, 50e9, ("ib0",), device="mlx5_0", port="2")
LINKS = (
    PORT,
    Link("eth0", ETHERNET, None, ("eth0",)),
    Link("GPU3 NVLink", NVLINK, 450e9, bus="0000:1b:00"),
    Link("GPU3 PCIe", PCIE, bus="0000:1b:00"),
)
DEVICE = {"device": "mlx5_0", "port": "2"}
GPU = {"gpu": "3", "bus": "0000:1b:00"}


def exposition(
    values: dict[tuple[str, str], dict[str, int]], *findings: LinkFinding, links=LINKS
) -> Exposition:
    return Exposition(
        links=links, values=values, said=list(findings), samples=7, missed=1, unix_s=1750000000.25
    )


def parsed(page: Exposition) -> dict[str, list]:
    """Samples by metric, after the types and samples of the real parser."""
    families = list(parser.text_string_to_metric_families(prometheus.render(page).decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a metric's lines are not together"
    assert all(family.documentation for family in families)
    return {
        sample.name: [(line.labels, line.value) for line in family.samples]
        for family in families
        for sample in family.samples
    } | {f"type {family.name}": family.type for family in families}


def test_names_of_node_exporter():
    metrics = parsed(
        exposition(
            {
                ("mlx5_0:2", "counters"): {"port_xmit_data": 1 << 60, "state": 4},
                ("mlx5_0:2", "hw_counters"): {"np_cnp_sent": 3},
                ("eth0", "dev"): {
                    "rx_bytes": 5,
                    "tx_dropped": 6,
                    "operational": 1,
                    "carrier_down_count": 2,
                },
                (TCP, "snmp"): {"RetransSegs": 8, "TCPTimeouts": 9},
            }
        )
    )
    assert metrics["node_infiniband_port_data_transmitted_bytes_total"] == [
        (DEVICE, float(1 << 60))
    ]
    assert metrics["node_infiniband_np_cnp_packets_sent_total"] == [(DEVICE, 3)]
    assert (
        metrics["node_infiniband_state_id"] == [(DEVICE, 4)]
        and metrics["type node_infiniband_state_id"] == "gauge"
    )
    assert metrics["node_infiniband_rate_bytes_per_second"] == [(DEVICE, 50e9)]
    assert metrics["node_network_receive_bytes_total"] == [({"device": "eth0"}, 5)]
    assert metrics["node_network_transmit_drop_total"] == [({"device": "eth0"}, 6)]
    assert (
        metrics["node_network_carrier_down_changes_total"] == [({"device": "eth0"}, 2)]
        and metrics["node_network_up"]
    )
    assert metrics["node_netstat_Tcp_RetransSegs"] == [({}, 8)] and metrics[
        "node_netstat_TcpExt_TCPTimeouts"
    ] == [({}, 9)]


def test_priorities_are_labels_and_durations_are_seconds():
    metrics = parsed(
        exposition(
            {
                ("eth0", "ethtool"): {
                    "rx_prio3_pause_duration": 2_500_000,
                    "tx_prio0_bytes": 7,
                    "tx_bytes_phy": 8,
                }
            }
        )
    )
    assert metrics["busbw_ethtool_rx_priority_pause_duration_seconds_total"] == [
        ({"device": "eth0", "priority": "3"}, 2.5)
    ]
    assert metrics["busbw_ethtool_tx_priority_bytes_total"] == [
        ({"device": "eth0", "priority": "0"}, 7)
    ]
    assert metrics["busbw_ethtool_tx_bytes_phy_total"] == [({"device": "eth0"}, 8)]


def test_gpus_have_their_index_and_bus():
    metrics = parsed(
        exposition(
            {
                ("GPU3 NVLink", "traffic"): {"nvlink_tx": 1024},
                ("GPU3 PCIe", "traffic"): {"pcie_tx": 9, "pcie_gen": 5},
            }
        )
    )
    assert metrics["busbw_nvlink_transmitted_bytes_total"] == [(GPU, 1024)]
    assert metrics["busbw_pcie_transmitted_bytes_per_second"] == [(GPU, 9)]
    assert metrics["type busbw_pcie_transmitted_bytes_per_second"] == "gauge"
    assert metrics["busbw_link_rate_bytes_per_second"][-1] == (
        {"link": "GPU3 NVLink", "kind": "nvlink"},
        450e9,
    )


def test_patterns_and_the_watch_itself():
    metrics = parsed(
        exposition(
            {},
            LinkFinding("mlx5_0:2", "loss", Verdict.WARN, "packets are lost", "packet_seq_err 5/s"),
        )
    )
    assert metrics["busbw_watch_pattern"] == [
        ({"link": "mlx5_0:2", "pattern": "loss", "verdict": "warn"}, 1)
    ]
    assert (metrics["busbw_watch_samples_total"], metrics["busbw_watch_missed_samples_total"]) == (
        [({}, 7)],
        [({}, 1)],
    )
    assert metrics["busbw_watch_last_sample_timestamp_seconds"] == [({}, 1750000000.25)]


def test_labels_are_escaped():
    name = 'a"b\\c\nd{}'
    metrics = parsed(
        exposition({(name, "dev"): {"rx_bytes": 1}}, links=(Link(name, ETHERNET, 1.0, (name,)),))
    )
    assert metrics["node_network_receive_bytes_total"] == [({"device": name}, 1)]
    assert metrics["busbw_link_rate_bytes_per_second"] == [({"link": name, "kind": "ethernet"}, 1)]


def everything() -> Exposition:
    """Every counter and level that a watch knows."""
    on_gpu = {
        "nvlink_tx": 1,
        "nvlink_rx": 1,
        "nvlink_replay": 1,
        "nvlink_recovery": 1,
        "nvlink_crc_flit": 1,
        "nvlink_crc_data": 1,
    }
    slot = {"pcie_tx": 1, "pcie_rx": 1, "pcie_gen": 1, "pcie_width": 1, "pcie_replay": 1}
    return exposition(
        {
            ("mlx5_0:2", "counters"): (
                {row.name: 1 for row in ON_PORT} | {"state": 4, "phys_state": 5}
            ),
            ("mlx5_0:2", "resources"): {"num_of_qp": 22},
            ("eth0", "dev"): dict.fromkeys(prometheus.NETWORK, 1),
            ("eth0", "ethtool"): dict.fromkeys(BY_ETHTOOL, 1),
            ("GPU3 NVLink", "traffic"): on_gpu,
            ("GPU3 PCIe", "traffic"): slot,
            (TCP, "snmp"): {name: 1 for name, row in BY_NAME.items() if row.owner.value == "TCP"},
            (HOST, "system"): {"cpu_busy": 1, "mem_free": 1},
        },
        LinkFinding("mlx5_0:2", "loss", Verdict.WARN, "packets are lost", "packet_seq_err 5/s"),
    )


def test_every_counter_has_its_own_valid_metric():
    metrics = {
        name: samples
        for name, samples in parsed(everything()).items()
        if not name.startswith("type ")
    }
    assert all(re.fullmatch(r"[a-z][a-zA-Z0-9_]*", name) for name in metrics)
    labels = [
        (name, tuple(sorted(labels.items())))
        for name, samples in metrics.items()
        for labels, _ in samples
    ]
    assert len(labels) == len(set(labels)), "two values have the same metric and labels"


def test_names_of_the_table_exist():
    assert set(prometheus.INFINIBAND) <= {row.name for row in ON_PORT} | LEVELS.keys()


def queries() -> list[str]:
    """The queries of the dashboard to Prometheus."""
    dashboard = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def test_the_dashboard_shows_metrics_that_are_exported():
    dashboard_queries = queries()
    assert len(dashboard_queries) >= 12
    exported = {
        name.split("{")[0].split(" ")[0]
        for name in prometheus.render(everything()).decode().splitlines()
        if name[0] != "#"
    }
    for query in dashboard_queries:
        metric_names = set(re.findall(r"\b(?:node|busbw)_\w+", query))
        assert metric_names and metric_names <= exported, query


def promtool(*words: object, stdin: bytes = b"") -> list[str]:
    """The lines of Prometheus' own check; skipped where it is not installed."""
    if not shutil.which("promtool"):
        pytest.skip("no promtool: make test-tools")
    result = subprocess.run(
        ["promtool", "check", *map(str, words)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    lines = (result.stdout + result.stderr).decode().splitlines()
    assert lines or not result.returncode
    return lines


def test_promtool_finds_fault_with_no_name_of_busbws_own():
    """The kernel's names stay as node_exporter has them, and drivers' as ethtool has."""
    lines = promtool("metrics", stdin=prometheus.render(everything()))
    assert [
        line for line in lines if not line.startswith(("node_netstat_", "busbw_ethtool_"))
    ] == []


def test_prometheus_takes_the_queries_of_the_dashboard(tmp_path):
    """As rules, with what Grafana puts into them."""
    filled = [re.sub(r"\$__\w+", "1m", query).replace("$", "") for query in queries()]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(filled)]
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )
    assert f"SUCCESS: {len(rules)} rules found" in "".join(
        promtool("rules", tmp_path / "rules.yml")
    )
