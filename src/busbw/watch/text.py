"""An interval of a watch: a line for each link, then the counter patterns found; or a line of
JSON.

An interval of a watch in the text of rdma_monitor: one block for each network port, counts of
the interval, rates in Gb/s.

Values of a bond are followed by those of its slaves. `-` is what this host or driver does not say.
"""

from datetime import datetime

import msgspec

from busbw.core.finding import Verdict
from busbw.core.link_samples import ETHERNET, IB, RDMA, ROCE, Flow, Slave, Watched, per_second
from busbw.core.unseen import seen
from busbw.ui.number_formats import Column, aligned, bandwidth_text, known, percent_text, wrapped

HOME = "\x1b[H"  # the cursor goes to the corner
REST = "\x1b[J"  # what is below it goes away
NEXT = "\x1b[K\n"  # the rest of a line, too
ALWAYS = ("link", "sent", "received")  # other columns are shown if any link has a value
DROP_ORDER = ("drops", "lost", "ECN", "CNP out", "CNP in", "rate", "pause out", "pause in")


def columns() -> list[Column]:
    """Their values take a Flow."""
    return [
        Column(title="link", value=lambda flow: flow.name, left=True),
        Column(title="rate", unit="GB/s", value=lambda flow: known(flow.rate, bandwidth_text)),
        Column(title="sent", unit="GB/s", value=lambda flow: known(flow.tx, bandwidth_text)),
        Column(
            title="%",
            value=lambda flow: "-" if flow.tx is None else percent_text(flow.tx, flow.rate),
        ),
        Column(title="received", unit="GB/s", value=lambda flow: known(flow.rx, bandwidth_text)),
        Column(
            title="%",
            value=lambda flow: "-" if flow.rx is None else percent_text(flow.rx, flow.rate),
        ),
        Column(
            title="pause in",
            unit="%",
            value=lambda flow: "-" if flow.rx_pause is None else percent_text(flow.rx_pause, 1),
        ),
        Column(
            title="pause out",
            unit="%",
            value=lambda flow: "-" if flow.tx_pause is None else percent_text(flow.tx_pause, 1),
        ),
        Column(title="CNP in", unit="/s", value=lambda flow: known(flow.cnp_handled, per_second)),
        Column(title="CNP out", unit="/s", value=lambda flow: known(flow.cnp_sent, per_second)),
        Column(title="ECN", unit="/s", value=lambda flow: known(flow.ecn_marked, per_second)),
        Column(title="lost", unit="/s", value=lambda flow: known(flow.lost, per_second)),
        Column(title="drops", unit="/s", value=lambda flow: known(flow.dropped, per_second)),
        Column(title="state", value=lambda flow: flow.state or "", left=True),
    ]


def table(watched: Watched, width: int | None = None) -> str:
    """The whole text of one interval."""
    local = datetime.fromisoformat(watched.at).astimezone()
    head = (
        f"{watched.host}  {local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03} "
        f" {_seconds(watched.seconds)}"
    )
    head += f"  {watched.missed} missed" if watched.missed else ""
    resent = watched.tcp.get("RetransSegs")
    head += f"  TCP retransmits {per_second(resent)}/s" if resent is not None else ""
    said = "".join(
        f"{_word(one.verdict):<5} {one.link}: {one.message}: {one.seen}  [{one.pattern}]\n"
        for one in watched.said
    )
    shown = [
        column
        for column in columns()
        if column.title in ALWAYS
        or any(column.value(flow) not in ("-", "") for flow in watched.links)
    ]
    return f"{head}\n{aligned(shown, watched.links, width, DROP_ORDER)}{wrapped(said, width)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.995 else f"{1000 * seconds:.0f} ms"


def _word(verdict: Verdict) -> str:
    return verdict.value.upper()


def screen(watched: Watched, width: int | None, height: int) -> str:
    """The table, which replaces the previous one, with what could not be read, cut to the height
    of the terminal.
    """
    text = table(watched, width) + wrapped(
        "".join(f"note: {reason}\n" for reason in watched.unread), width
    )
    lines = seen(text).splitlines()
    shown = (
        lines
        if len(lines) < height
        else [
            *lines[: height - 2],
            f"... {len(lines) - height + 2} more lines: a larger window shows them",
        ]
    )
    return HOME + "".join(f"{line}{NEXT}" for line in shown) + REST


def line(watched: Watched) -> bytes:
    """One object of JSON Lines."""
    return msgspec.json.encode(watched) + b"\n"


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
