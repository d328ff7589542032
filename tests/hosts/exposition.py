"""What an exporter shows of made-up links, with any values, or with every counter that busbw knows."""

from busbw.core.counters import Owner
from busbw.core.finding import Verdict
from busbw.core.link_samples import (
    ETHERNET,
    HOST,
    IB,
    NVLINK,
    PCIE,
    Exposition,
    HostLink,
    LinkFinding,
    SeenPattern,
)
from busbw.core.telemetry import TCP
from busbw.core.watch_counters import ethtool_names, levels, port_counters, watched_by_name
from busbw.watch import metric_names

LINKS = (
    HostLink("mlx5_0:2", IB, 50e9, ("ib0",), device="mlx5_0", port="2"),
    HostLink("eth0", ETHERNET, None, ("eth0",)),
    HostLink("GPU3 NVLink", NVLINK, 450e9, bus="0000:1b:00"),
    HostLink("GPU3 PCIe", PCIE, bus="0000:1b:00"),
)
LOSS = LinkFinding("mlx5_0:2", "loss", Verdict.WARN, "packets are lost", "packet_seq_err 5/s")
AT_S = 1750000000.25


def exposition(
    values: dict[tuple[str, str], dict[str, int]],
    *findings: LinkFinding,
    links: tuple[HostLink, ...] = LINKS,
    at_s: float = AT_S,
) -> Exposition:
    return Exposition(
        links=links,
        values=values,
        findings=list(findings),
        seen={SeenPattern(one.link, one.pattern, one.verdict): at_s for one in findings},
        samples=7,
        missed=1,
        unix_s=at_s,
    )


def everything(value: int = 1, at_s: float = AT_S) -> Exposition:
    """Every counter and level that a watch knows, all with one value, and a pattern."""
    of_gpu = [name for name, row in watched_by_name().items() if row.owner is Owner.GPU]
    nvlink = [name for name in (*of_gpu, *levels()) if name.startswith("nvlink")]
    pcie = [name for name in (*of_gpu, *levels()) if name.startswith("pcie")]
    tcp = [name for name, row in watched_by_name().items() if row.owner is Owner.TCP]
    on_port = [row.name for row in port_counters()]
    return exposition(
        {
            ("mlx5_0:2", "counters"): dict.fromkeys(on_port, value) | {"state": 4, "phys_state": 5},
            ("mlx5_0:2", "resources"): {"num_of_qp": value},
            ("eth0", "dev"): dict.fromkeys(metric_names.metric_names("network"), value),
            ("eth0", "ethtool"): dict.fromkeys(ethtool_names(), value),
            ("GPU3 NVLink", "traffic"): dict.fromkeys(nvlink, value),
            ("GPU3 PCIe", "traffic"): (
                dict.fromkeys(pcie, value) | {"pcie_gen": 5, "pcie_width": 16}
            ),
            (TCP, "snmp"): dict.fromkeys(tcp, value),
            (HOST, "system"): {"cpu_busy": value, "mem_free": value},
        },
        LOSS,
        at_s=at_s,
    )
