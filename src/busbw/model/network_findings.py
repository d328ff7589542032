"""Findings on the hosts' network settings, for runs over several hosts."""

from busbw.core.finding import Verdict
from busbw.core.host_ranges import listed
from busbw.core.result import Outcome
from busbw.core.topology import Host, Topology
from busbw.model.rule import Conclusion, FindingRule

PACED = "bbr"  # prefix of all its versions
SOCKET = "Socket"  # NCCL's name of its own TCP
MEASURED = (
    "between two emulated hosts an all_reduce of 16 MiB took 1.4 to 1.8 times as long with BBR as"
    " with reno, one of 32 KiB the same time: benchmarks/net_loss_2cpu_202611"
)


def paced(result: Outcome, topology: Topology) -> Conclusion | None:
    """BBR on hosts that used TCP: it slows down streams that pause, as collectives do."""
    names = {device.host for device in result.world.devices}
    hosts = [host for host in topology.hosts if host.hostname in names]
    with_bbr = [host.hostname for host in hosts if host.congestion.startswith(PACED)]
    if len(names) < 2 or not with_bbr or not _by_tcp(result, hosts):
        return None
    message = (
        f"TCP's congestion control is BBR on {listed(with_bbr)}, which slows down the streams of"
        " collectives because they pause"
    )
    fix = (
        "measure again after `sysctl net.ipv4.tcp_congestion_control=cubic` on every host; for"
        " GPUs, --net busbw selects cubic itself"
    )
    return Conclusion(Verdict.WARN, message, MEASURED, fix)


def _by_tcp(result: Outcome, hosts: list[Host]) -> bool:
    """Whether hosts exchanged data over the system's TCP; if unknown, whether RDMA is absent."""
    if result.library.network:
        return result.library.network == SOCKET
    return not any(nic.up and nic.kind != "ethernet" for host in hosts for nic in host.nics)


TCP_CONGESTION = FindingRule(
    "tcp_congestion",
    (Verdict.WARN,),
    "hosts exchanged data over the system's TCP, and its congestion control is BBR "
    "([its effect](../../benchmarks/net_loss_2cpu_202611/README.md#what-any-tcp-loses-by-it))",
    lambda run: paced(run.result, run.topology),
)
RULES = (TCP_CONGESTION,)
