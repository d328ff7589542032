"""Findings on how ranks were connected: where NCCL fell back to a slower transport."""

from collections.abc import Callable

from busbw.core.finding import RunFinding, Verdict
from busbw.core.ran import LoggedConnections, NcclConnection, UnlistedConnections
from busbw.core.result import Outcome
from busbw.core.sizes import counted
from busbw.model.rule import Conclusion, Find, FindingRule, Run

SHOWN = 3  # pairs of ranks
Judge = Callable[[LoggedConnections, Outcome], Conclusion | None]
# GPUs whose memory is that of the host: GPUDirect RDMA does not exist there.
HOST_MEMORY = ("GB10",)
# What the names of networks begin with that can send from a GPU's memory by RDMA: NCCL's own and
# NVIDIA's plugin (IBext_v9), and the names of aws-ofi-nccl. Others, such as Socket, Google's
# FastSocket and busbw, are built on TCP or unknown.
DIRECT = ("NET/IB", "NET/AWS Libfabric", "NET/Libfabric", "NET/OFI")
NO_LIMIT = ("SYS", "5")  # of the distance that a GPU may be away
# Variables that exclude a faster transport, and the values with which they do.
EXCLUDES: dict[str, Callable[[str], bool]] = {
    "NCCL_P2P_DISABLE": lambda value: value != "0",
    "NCCL_P2P_LEVEL": lambda value: value not in NO_LIMIT,
    "NCCL_NET_GDR_LEVEL": lambda value: value not in NO_LIMIT,
    "NCCL_DMABUF_ENABLE": lambda value: value == "0",
    "NCCL_IB_DISABLE": lambda value: value != "0",
}
FIX_SHM = (
    "see what turns P2P off: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, ACS or an IOMMU (`busbw check`,"
    " `nvidia-smi topo -p2p r`). Between GPUs on two CPU sockets and without NVLink, SHM is NCCL's"
    " own choice"
)
FIX_GDR = (
    "load nvidia-peermem, or use a kernel and driver with DMA-BUF (`busbw check`)."
    " NCCL_NET_GDR_LEVEL says how far apart a GPU and its network card may be"
)
FIX_SOCKET = (
    "see NCCL_NET, NCCL_IB_DISABLE and NCCL_IB_HCA, and what NCCL's log says before `Using network`"
)


def findings(result: Outcome) -> list[RunFinding]:
    """What follows from the connections of a result of any kind."""
    found = []
    for rule, (*_, judge) in zip(RULES, _ROWS, strict=True):
        conclusion = judge(result.ran, result) if result.ran else None
        if conclusion:
            found.append(rule.finding(conclusion))
    return found


def _judge_all(ran: LoggedConnections, result: Outcome) -> Conclusion | None:
    slow = (_judge_shm, _judge_gdr, _judge_sockets)
    if any(judge(ran, result) for judge in slow):
        return None
    names = " and ".join(ran.transports())
    return Conclusion(Verdict.PASS, f"ranks are connected by {names}", _evidence(ran))


def _judge_shm(ran: LoggedConnections, result: Outcome) -> Conclusion | None:
    pairs = _pairs(ran, lambda row: row.transport.startswith("SHM/"))
    if not pairs:
        return None
    message = f"SHM instead of P2P between {pairs}: the data passes through host memory"
    fix = _fix(FIX_SHM, result, "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
    return Conclusion(Verdict.WARN, message, _evidence(ran), fix)


def _judge_gdr(ran: LoggedConnections, result: Outcome) -> Conclusion | None:
    pairs = _pairs(ran, lambda row: row.gdr is False and row.transport.startswith(DIRECT))
    gpus = {device.name for device in result.world.devices}
    if not pairs or any(part in gpu for gpu in gpus for part in HOST_MEMORY):
        return None
    message = (
        f"the network does not use GPUDirect RDMA between {pairs}: the data passes through"
        " host memory"
    )
    fix = _fix(FIX_GDR, result, "NCCL_NET_GDR_LEVEL", "NCCL_DMABUF_ENABLE")
    return Conclusion(Verdict.WARN, message, _evidence(ran), fix)


def _judge_sockets(ran: LoggedConnections, result: Outcome) -> Conclusion | None:
    pairs = _pairs(ran, _is_socket)
    host, rdma = _rdma(ran, result)
    if not pairs or not rdma:
        return None
    message = f"sockets between {pairs}, though {host} has {', '.join(rdma)}"
    fix = _fix(FIX_SOCKET, result, "NCCL_IB_DISABLE")
    return Conclusion(Verdict.WARN, message, _evidence(ran), fix)


def _is_socket(row: NcclConnection | UnlistedConnections) -> bool:
    return row.transport == "NET/Socket"


def _rdma(ran: LoggedConnections, result: Outcome) -> tuple[str, list[str]]:
    """A host that uses sockets and has RDMA devices, and their names. Of a log that does not name
    the ranks' hosts, any host that has some.

    NCCL's log names those that it found. It does not look for any if NCCL_IB_DISABLE is set.
    """
    found = dict(ran.rdma)
    if not found and _exclude(result, "NCCL_IB_DISABLE"):
        for host in result.topology.hosts:
            found[host.hostname] = [
                nic.name for nic in host.nics if nic.kind != "ethernet" and nic.up
            ]
    slow = [row for row in ran.connections if _is_socket(row)]
    ranks = {rank for row in slow for rank in (row.sender, row.receiver)}
    # NCCL's log has host names without their domain.
    hosts = {_short(device.host) for device in result.world.devices if device.rank in ranks}
    for name, devices in found.items():
        if devices and (not result.world.devices or _short(name) in hosts):
            return name, devices
    return "", []


def _short(host: str) -> str:
    return host.partition(".")[0]


def _exclude(result: Outcome, *variables: str) -> list[str]:
    """`NCCL_P2P_DISABLE=1`: those of the variables with which the run excluded a transport."""
    values = {name: result.environment.get(name, "").strip() for name in variables}
    return [f"{name}={value}" for name, value in values.items() if value and EXCLUDES[name](value)]


def _fix(usual: str, result: Outcome, *variables: str) -> str:
    """What to do: try without what the run set, then what is usual."""
    chosen = " and ".join(_exclude(result, *variables))
    return f"try without {chosen}, which the run set; otherwise {usual}" if chosen else usual


def _evidence(ran: LoggedConnections) -> str:
    """`24 connections P2P/CUMEM; 8 connections NET/IB with GDR over mlx5_0, mlx5_1`."""
    devices: dict[str, set[str]] = {name: set() for name in ran.transports()}
    for connection in ran.connections:
        devices[connection.name] |= {name.partition(":")[2] for name in connection.devices}
    for row in ran.unlisted:
        devices[row.name] |= set(row.devices)
    parts = []
    for name, count in ran.transports().items():
        over = f" over {', '.join(sorted(devices[name]))}" if devices[name] else ""
        parts.append(f"{counted(count, 'connection')} {name}{over}")
    return f"NCCL's log: {'; '.join(parts)}"


def _pairs(
    ran: LoggedConnections, is_slow: Callable[[NcclConnection | UnlistedConnections], bool]
) -> str:
    """`ranks 0 and 1, 2 and 3`, each slow pair once; '' if none is slow."""
    slow = filter(is_slow, ran.connections)
    pairs = sorted({tuple(sorted((row.sender, row.receiver))) for row in slow})
    if not pairs:
        return ""
    text = "ranks " + ", ".join(f"{first} and {second}" for first, second in pairs[:SHOWN])
    if len(pairs) > SHOWN:
        least = "at least " if any(map(is_slow, ran.unlisted)) else ""
        text += f" and {least}{counted(len(pairs) - SHOWN, 'more pair')}"
    return text


def _of_run(judge: Judge) -> Find:
    """The judge as a rule of sweeps takes it."""

    def find(run: Run) -> Conclusion | None:
        ran = run.result.ran
        return judge(ran, run.result) if ran else None

    return find


_ROWS: tuple[tuple[str, Verdict, str, Judge], ...] = (
    (
        "transport",
        Verdict.PASS,
        "how NCCL's log says that ranks are connected, without one of the following",
        _judge_all,
    ),
    (
        "transport_shm",
        Verdict.WARN,
        "NCCL's log names SHM between ranks: GPUs of a host exchange data through its memory,"
        " not by P2P",
        _judge_shm,
    ),
    (
        "transport_gdr",
        Verdict.WARN,
        "NCCL's log names a network that can do RDMA, without GDRDMA: data for the network passes"
        " through host memory",
        _judge_gdr,
    ),
    (
        "transport_socket",
        Verdict.WARN,
        "NCCL's log names NET/Socket, and RDMA devices that it found on a host of these ranks, or"
        " on any host if the log does not name theirs",
        _judge_sockets,
    ),
)
RULES = tuple(
    FindingRule(name, (verdict,), docs, _of_run(judge)) for name, verdict, docs, judge in _ROWS
)
