"""What the network's settings on the hosts mean for a run over several of them. Pure."""

from busbw.core.finding import Verdict
from busbw.core.result import Result
from busbw.core.topology import Host
from busbw.model.rule import Conclusion, Rule, Run

PACED = "bbr"  # and its later versions
NAMED = 3
SOCKET = "Socket"  # NCCL's word for its own TCP
MEASURED = (
    "between two emulated hosts an all_reduce of 16 MiB took 1.4 to 1.8 times as long under BBR as under reno, one of 32 KiB no longer: "
    "benchmarks/net_loss_2cpu_202611"
)


def _paced(run: Run) -> Conclusion | None:
    """TCP that is paced by BBR, where a run went over it: streams of collectives pause, and are slowed for that."""
    result, topology = run.result, run.topology
    names = {device.host for device in result.world.devices}
    hosts = [host for host in topology.hosts if host.hostname in names]
    paced = [host.hostname for host in hosts if host.congestion.startswith(PACED)]
    if len(names) < 2 or not paced or not _by_tcp(result, hosts):
        return None
    where = ", ".join(paced[:NAMED]) + (f" and {len(paced) - NAMED} more" if len(paced) > NAMED else "")
    message = (
        f"TCP's congestion control is BBR on {where}: it sends no faster than it last saw a stream send, and those of collectives pause"
    )
    fix = (
        "measure again after `sysctl net.ipv4.tcp_congestion_control=cubic` on every host; between GPUs, --net busbw takes cubic by itself"
    )
    return Conclusion(Verdict.WARN, message, MEASURED, fix)


def _by_tcp(result: Result, hosts: list[Host]) -> bool:
    """Whether hosts exchanged over the system's own TCP; where nothing says so, they did if they have no RDMA port."""
    if result.library.network:
        return result.library.network == SOCKET
    return not any(nic.up and nic.kind != "ethernet" for host in hosts for nic in host.nics)


RULES = (
    Rule("tcp_congestion", (Verdict.WARN,),
         "hosts exchanged data over the system's own TCP, and its congestion control is BBR "
         "([what that costs](../../benchmarks/net_loss_2cpu_202611/README.md#what-any-tcp-loses-by-it))", _paced),
)  # fmt: skip
