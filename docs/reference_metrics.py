"""The reference page of what busbw exports to Prometheus, from the tables of names."""

import re
from collections.abc import Callable, Iterable

from markdown_table import code, table

from busbw.check import metrics as check_metrics
from busbw.core.link_samples import JOB_METRICS_PORT, METRICS_PORT
from busbw.core.watch_counters import ethtool_names, port_counters
from busbw.job.live import prometheus as job_metrics
from busbw.ui.metric_text import GAUGE
from busbw.watch import metric_names, prometheus
from busbw.watch.metric_names import Metric

_ON_PORT = (*(row.name for row in port_counters()), "state", "phys_state", "num_of_qp")
_PARTS: tuple[tuple[str, str, Iterable[str], Callable[[str], Metric]], ...] = (
    ("RDMA ports", "device, port", _ON_PORT, metric_names.port_metric),
    ("Interfaces", "device", metric_names.metric_names("network"), metric_names.interface_metric),
    ("Drivers of interfaces", "device", sorted(ethtool_names()), metric_names.ethtool_metric),
    ("GPUs", "gpu, bus", metric_names.metric_names("gpu"), metric_names.gpu_metric),
    ("TCP", "", metric_names.metric_names("tcp"), metric_names.tcp_metric),
)
_TITLES = ("metric", "type", "labels", "meaning", "near")
_LABELS = {
    prometheus.LINK_RATE: "link, kind",
    prometheus.PORT_RATE: "device, port",
    prometheus.PATTERN: "link, pattern, verdict",
    prometheus.LAST_SEEN: "link, pattern, verdict",
}


def exported() -> str:
    """What `busbw check` exports, then what `busbw watch` and `busbw watch job` do."""
    return (
        "What busbw exports to Prometheus. Every name begins with `busbw_`. The column `near` is"
        " the metric of node_exporter (`node_*`) or dcgm-exporter (`DCGM_*`) with the same or"
        " nearly the same value. [How to leave out](../how-to/monitor-with-prometheus.md"
        "#leave-out-what-another-exporter-has) what another exporter has.\n\n"
        + _checks()
        + f"## `busbw watch --listen`\n\nThe port is {METRICS_PORT} if none is given. Counters"
        " begin with their value on the host, and keep increasing when a 32-bit counter wraps or a"
        " driver is reloaded. A counter that a driver lacks is absent.\n\n"
        + _others()
        + "".join(_part(*part) for part in _PARTS)
        + _jobs()
    )


def _checks() -> str:
    rows = [
        (code(name), GAUGE, ", ".join(labels), meaning)
        for name, (meaning, labels) in check_metrics.METRICS.items()
    ]
    return (
        "## `busbw check --format prometheus`\n\n"
        "`verdict` is `fail`, `unknown`, `warn`, `no_data`, `pass` or `skip`, as in the"
        " [list of checks](checks.md). `no_data` is a value that this kernel, driver or user is not"
        " given, `unknown` a part that did not answer. A check whose verdict changes gets another"
        " series, and Prometheus ends the earlier one with the next scrape.\n\n"
        + table(("metric", "type", "labels", "meaning"), rows)
    )


def _jobs() -> str:
    rows = [
        (code(name), kind, ", ".join(("run", *labels)), meaning)
        for name, (kind, meaning, labels) in job_metrics.METRICS.items()
    ]
    return (
        f"## `busbw watch job --listen`\n\nThe port is {JOB_METRICS_PORT} if none is given. `run`"
        " is the name of the job's folder. `kind` is what is wrong in a word, as `late` or"
        f" `stopped`, or `{job_metrics.NO_KIND}`; `verdict` is `fail`, `warn`, `unknown` or `pass`."
        " What is not known is absent: without steps of DistributedDataParallel there are no"
        " times.\n\n" + table(("metric", "type", "labels", "meaning"), rows)
    )


def _others() -> str:
    near = {prometheus.PORT_RATE: code("node_infiniband_rate_bytes_per_second")}
    rows = [
        (code(name), kind, _LABELS.get(name, ""), meaning, near.get(name, ""))
        for name, (kind, meaning) in prometheus.OTHERS.items()
    ]
    return "### Links and the watch itself\n\n" + table(_TITLES, rows)


def _part(
    title: str, labels: str, counters: Iterable[str], metric_of: Callable[[str], Metric]
) -> str:
    rows = [
        _row(metric_of(counter), counter, labels)
        for counter in counters
        if not re.search(r"_prio[1-7]_", counter)
    ]
    return f"### {title}\n\n{_NOTES.get(title, '')}{table(_TITLES, rows)}"


_NOTES = {
    "Drivers of interfaces": "Counters of `ethtool -S`. node_exporter's collector `ethtool` is off"
    " by default; its durations are in the driver's unit.\n\n",
    "GPUs": "`DCGM_FI_PROF_NVLINK_*` and `DCGM_FI_PROF_PCIE_*` are rates. Those of PCIe include"
    " protocol overhead, as busbw's do.\n\n",
    "TCP": "Of the network namespace in which busbw runs. Some are not among node_exporter's"
    " default fields (`--collector.netstat.fields`).\n\n",
}


def _row(metric: Metric, counter: str, labels: str) -> tuple[str, ...]:
    names = [labels, *(name for name, _ in metric.labels)]
    meaning = prometheus.meaning_of(counter).replace("priority 0", "a priority")
    near = metric.near.replace("_prio0_", "_prio*_")
    kind = prometheus.kind_of(counter)
    return code(metric.name), kind, ", ".join(filter(None, names)), meaning, code(near)
