"""The exporter's page, as Prometheus' own parser reads it."""

import json
import re

import pytest
import yaml
from exposition import AT_S, LOSS, everything, exposition
from prometheus_client import parser
from promtool import promtool

from busbw.check import metrics as check_metrics
from busbw.core.link_samples import ETHERNET, HostLink
from busbw.core.telemetry import TCP
from busbw.core.watch_counters import levels, port_counters
from busbw.job.live import prometheus as job_metrics
from busbw.launch.manifest import alerts, filler
from busbw.watch import metric_names, prometheus

DEVICE = {"device": "mlx5_0", "port": "2"}
GPU = {"gpu": "3", "bus": "0000:1b:00"}


def parsed(page) -> dict[str, list]:
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


def test_names_say_what_they_measure_and_whose_they_are():
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
    expected = {
        "busbw_infiniband_port_data_transmitted_bytes_total": [(DEVICE, float(1 << 60))],
        "busbw_infiniband_np_cnp_packets_sent_total": [(DEVICE, 3)],
        "busbw_infiniband_state_id": [(DEVICE, 4)],
        "type busbw_infiniband_state_id": "gauge",
        "busbw_infiniband_rate_bytes_per_second": [(DEVICE, 50e9)],
        "busbw_network_receive_bytes_total": [({"device": "eth0"}, 5)],
        "busbw_network_transmit_drop_total": [({"device": "eth0"}, 6)],
        "busbw_network_carrier_down_changes_total": [({"device": "eth0"}, 2)],
        "busbw_network_up": [({"device": "eth0"}, 1)],
        "busbw_tcp_retransmitted_segments_total": [({}, 8)],
        "busbw_tcp_retransmission_timeouts_total": [({}, 9)],
        "type busbw_tcp_retransmission_timeouts": "counter",
    }
    assert {name: metrics[name] for name in expected} == expected


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
    assert metrics["busbw_link_rate_bytes_per_second"] == [  # not again that of the RDMA port
        ({"link": "GPU3 NVLink", "kind": "nvlink"}, 450e9)
    ]


def test_patterns_and_the_watch_itself():
    metrics = parsed(exposition({}, LOSS))
    labels = {"link": "mlx5_0:2", "pattern": "loss", "verdict": "warn"}
    assert metrics["busbw_watch_pattern"] == [(labels, 1)]
    assert metrics["busbw_watch_pattern_last_seen_timestamp_seconds"] == [(labels, AT_S)]
    assert (metrics["busbw_watch_samples_total"], metrics["busbw_watch_missed_samples_total"]) == (
        [({}, 7)],
        [({}, 1)],
    )
    assert metrics["busbw_watch_last_sample_timestamp_seconds"] == [({}, AT_S)]


def test_labels_are_escaped():
    name = 'a"b\\c\nd{}'
    metrics = parsed(
        exposition(
            {(name, "dev"): {"rx_bytes": 1}}, links=(HostLink(name, ETHERNET, 1.0, (name,)),)
        )
    )
    assert metrics["busbw_network_receive_bytes_total"] == [({"device": name}, 1)]
    assert metrics["busbw_link_rate_bytes_per_second"] == [({"link": name, "kind": "ethernet"}, 1)]


def test_every_counter_has_its_own_valid_metric():
    metrics = {
        name: samples
        for name, samples in parsed(everything()).items()
        if not name.startswith("type ")
    }
    assert all(re.fullmatch(r"busbw_[a-zA-Z0-9_]*", name) for name in metrics)
    labels = [
        (name, tuple(sorted(labels.items())))
        for name, samples in metrics.items()
        for labels, _ in samples
    ]
    assert len(labels) == len(set(labels)), "two values have the same metric and labels"


def test_names_of_the_table_exist():
    assert (
        metric_names.metric_names("infiniband").keys()
        <= {row.name for row in port_counters()} | levels().keys()
    )


def exported_names() -> set[str]:
    """The metrics of a watch, of a watch of a job, and of checks."""
    lines = prometheus.render(everything()).decode().splitlines()
    watched = {re.split(r"[{ ]", line)[0] for line in lines if line[0] != "#"}
    return watched | check_metrics.METRICS.keys() | job_metrics.METRICS.keys()


def dashboard_queries() -> list[str]:
    dashboard = json.loads(filler.plain("grafana-dashboard.json"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def alert_rules() -> list[dict[str, str]]:
    groups = yaml.safe_load(alerts.rules(300))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alert_queries() -> list[str]:
    return [rule["expr"] for rule in alert_rules()]


@pytest.mark.parametrize(("queries", "least"), [(dashboard_queries, 12), (alert_queries, 12)])
def test_dashboard_and_rules_query_metrics_that_are_exported(queries, least):
    texts = queries()
    assert len(texts) >= least
    known = exported_names() | {"up", "node_textfile_scrape_error"}
    known |= {rule["record"] for rule in alert_rules() if "record" in rule}
    for query in texts:
        names = set(re.findall(r"\b(?:node_|busbw[_:])[\w:]+|\bup\b", query))
        assert names and names <= known, query


def test_promtool_finds_fault_with_no_name_of_busbws_own():
    """Drivers' names stay as ethtool has them."""
    lines = promtool("check", "metrics", stdin=prometheus.render(everything()))
    assert [line for line in lines if not line.startswith("busbw_ethtool_")] == []
