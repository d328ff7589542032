"""The names of the metrics that a watch exports (watch/metric_names.csv), and those of other
exporters that are near them.

Every name begins with busbw_, so that no sum over a metric of another exporter counts twice. What
follows is node_exporter's name where it has the same value (its collectors infiniband, netdev,
netclass and ethtool). `near` is the metric of node_exporter or of DCGM's exporter (dcgm-exporter)
with the same or nearly the same value; '' if there is none.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

import msgspec

from busbw.core.table_file import rows
from busbw.core.watch_counters import levels, watched_by_name
from busbw.ui.metric_text import Labels

PRIORITY = re.compile(r"(tx|rx)_prio(\d)_(\w+)")
IN_SNMP = ("RetransSegs", "OutSegs")  # of Tcp in /proc/net/snmp; the others are of TcpExt


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a counter or level. `scale` is its value for each unit of the counter."""

    name: str
    near: str = ""
    labels: Labels = ()  # in addition to those of the link
    scale: float = 1


class MetricName(msgspec.Struct, frozen=True):
    """The name of a counter's metric, without what it begins with."""

    group: Literal["infiniband", "network", "gpu", "tcp"]
    counter: str
    name: str
    near: str = ""


@cache
def metric_names(group: str) -> dict[str, MetricName]:
    """The names of one group, by counter."""
    return {
        row.counter: row for row in rows("watch/metric_names.csv", MetricName) if row.group == group
    }


def port_metric(counter: str) -> Metric:
    """The metric of an RDMA port's counter."""
    row = metric_names("infiniband").get(counter)
    if row is not None:
        return Metric(f"busbw_infiniband_{row.name}", f"node_infiniband_{row.name}")
    return Metric(f"busbw_infiniband_{counter}{'' if counter in levels() else '_total'}")


def interface_metric(counter: str) -> Metric:
    """The metric of an interface's counter of the kernel."""
    name = metric_names("network")[counter].name
    return Metric(f"busbw_network_{name}", f"node_network_{name}")


def tcp_metric(counter: str) -> Metric:
    """The metric of a TCP counter of the network namespace."""
    near = f"node_netstat_{'Tcp' if counter in IN_SNMP else 'TcpExt'}_{counter}"
    return Metric(f"busbw_tcp_{metric_names('tcp')[counter].name}", near)


def gpu_metric(counter: str) -> Metric:
    """The metric of a GPU's NVLinks or PCIe slot."""
    row = metric_names("gpu")[counter]
    return Metric(f"busbw_{row.name}", row.near)


def ethtool_metric(counter: str) -> Metric:
    """The metric of a counter of `ethtool -S`. Counters that exist for each priority share one
    metric with the priority as a label; durations are in seconds.
    """
    name = f"busbw_ethtool_{counter}"
    near = f"node_ethtool_{_in_words(counter)}"
    labels: Labels = ()
    match = PRIORITY.fullmatch(counter)
    if match:
        direction, priority, quantity = match.groups()
        name = f"busbw_ethtool_{direction}_priority_{quantity}"
        labels = (("priority", priority),)
    if counter in levels():
        return Metric(f"{name}_percent", near, labels)
    if watched_by_name()[counter].unit == "us":
        return Metric(f"{name}_seconds_total", near, labels, scale=1e-6)
    return Metric(f"{name}_total", near, labels)


def _in_words(counter: str) -> str:
    """`rx_prio3_bytes` as node_exporter has it: `received_prio3_bytes`."""
    words = {"rx": "received", "tx": "transmitted"}
    return "_".join(words.get(part, part) for part in counter.split("_"))
