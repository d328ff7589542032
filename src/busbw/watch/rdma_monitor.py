"""An interval of a watch in the text of rdma_monitor: one block for each network port, counts of
the interval, rates in Gb/s.

Values of a bond are followed by those of its slaves. `-` is what this host or driver does not say.
"""

from datetime import datetime

from busbw.core.link_samples import ETHERNET, IB, RDMA, ROCE, Flow, Slave, Watched

LINE = "------\n"
PORTS = (IB, ROCE, RDMA, ETHERNET)
WAYS = ("tx", "rx")
# Name in the text, and the counter.
COUNTS = {
    "np_cnp_sent": "np_cnp_sent",
    "rp_cnp_handled": "rp_cnp_handled",
    "num_of_qp": "num_of_qp",
    "np_ecn_marked": "np_ecn_marked_roce_packets",
    "rp_cnp_ignored": "rp_cnp_ignored",
    "out_of_buffer": "out_of_buffer",
    "out_of_seq": "out_of_sequence",
    "packet_seq_err": "packet_seq_err",
}
LEVEL = "num_of_qp"
Part = Flow | Slave


def text(watched: Watched, *, first: bool) -> str:
    """The blocks of one interval. The port is named if there is more than one."""
    ports = [flow for flow in watched.links if flow.kind in PORTS]
    blocks = [_block(watched, flow, named=len(ports) > 1) for flow in ports]
    return (LINE if first else "") + "".join(f"{block}{LINE}" for block in blocks)


def _block(watched: Watched, flow: Flow, *, named: bool) -> str:
    seconds = watched.seconds
    parts: tuple[Part, ...] = (flow, *flow.slaves)
    slaves = f" ({'/'.join(slave.name for slave in flow.slaves)})" if flow.slaves else ""
    lines = [
        _time(watched.at),
        *([f"interface: {flow.bond or flow.name}{slaves}"] if named else []),
    ]
    lines += [
        f"{way}_rate: {_of_all([_gbit(part.tx if way == 'tx' else part.rx) for part in parts])}"
        for way in WAYS
    ]
    for what in ("pause", "pause_duration"):
        lines += [
            f"{way}_{what}: {_of_all([_pauses(part, way, what, seconds) for part in parts])}"
            for way in WAYS
        ]
    lines += [
        f"{name}: {_count(flow.counters.get(key), 1 if key == LEVEL else seconds)}"
        for name, key in COUNTS.items()
    ]
    lines += [
        f"{way}_rate_prio0:"
        f" {_of_all([_gbit(part.counters.get(f'{way}_prio0_bytes')) for part in parts])}"
        for way in WAYS
    ]
    resent, sent = (watched.tcp.get(name) for name in ("RetransSegs", "OutSegs"))
    lines.append(f"tcp_segs_retrans: {_count(resent, seconds)}")
    lines.append(
        "tcp_retrans_rate:"
        f" {'-' if resent is None or sent is None else f'{resent / sent if sent else 0:.4g}'}"
    )
    lines.append(f"cpu_usage: {'-' if watched.cpu is None else f'{100 * watched.cpu:.2f}%'}")
    free = watched.free_memory_bytes
    lines.append(f"free_mem: {'-' if free is None else f'{free // 1024} kB'}")
    return "".join(f"{line}\n" for line in lines)


def _time(at: str) -> str:
    local = datetime.fromisoformat(at).astimezone()
    return f"{local.year}-{local.month}-{local.day} {local:%H:%M:%S %Z}"


def _of_all(values: list[str]) -> str:
    """The port's value, and those of a bond's slaves."""
    whole, *slaves = values
    return whole + (f" ({'/'.join(slaves)})" if slaves else "")


def _gbit(bytes_per_s: float | None) -> str:
    return "-" if bytes_per_s is None else f"{bytes_per_s * 8 / 1e9:.3f}"


def _count(per_s: float | None, seconds: float) -> str:
    return "-" if per_s is None else str(round(per_s * seconds))


def _pauses(part: Part, way: str, what: str, seconds: float) -> str:
    """The pauses of all priorities if there are any, else those of the whole link; durations in
    us.
    """
    counters = part.counters
    by_priority = [
        value
        for number in range(8)
        if (value := counters.get(f"{way}_prio{number}_{what}")) is not None
    ]
    whole = counters.get(f"{way}_{what}_ctrl_phy", counters.get(f"{way}_global_{what}"))
    return _count(
        sum(by_priority) if by_priority and (whole is None or any(by_priority)) else whole, seconds
    )
