"""An interval of a watch as text, in three formats.

`table` has a line for each link, then the counter patterns found; `screen` redraws it on a
terminal. `line` is one line of JSON.

`text` is the format of rdma_monitor: one block for each network port, counts of the interval, and
rates in Gb/s. Values of a bond are followed by those of its slaves. A `-` stands for a value that
this host or driver does not report.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from busbw.core.link_samples import (
    ETHERNET,
    IB,
    RDMA,
    ROCE,
    LinkFlow,
    SlaveFlow,
    WatchInterval,
    per_second,
)
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, percent_text, text_or_unknown
from busbw.ui.redraw import redrawn

ALWAYS = ("link", "sent", "received")  # other columns are shown if any link has a value
DROP_ORDER = ("drops", "lost", "ECN", "CNP out", "CNP in", "rate", "pause out", "pause in")
LINE = "------\n"
PORTS = (IB, ROCE, RDMA, ETHERNET)
DIRECTIONS = ("tx", "rx")
# The name in the text, and the counter.
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


def columns() -> list[Column]:
    """The columns of the table, whose values are functions of a LinkFlow."""
    return [
        Column(title="link", value=lambda flow: flow.name, left=True),
        Column(
            title="rate", unit="GB/s", value=lambda flow: text_or_unknown(flow.rate, bandwidth_text)
        ),
        Column(
            title="sent", unit="GB/s", value=lambda flow: text_or_unknown(flow.tx, bandwidth_text)
        ),
        Column(title="%", value=lambda flow: _percent(flow.tx, flow.rate)),
        Column(
            title="received",
            unit="GB/s",
            value=lambda flow: text_or_unknown(flow.rx, bandwidth_text),
        ),
        Column(title="%", value=lambda flow: _percent(flow.rx, flow.rate)),
        Column(title="pause in", unit="%", value=lambda flow: _percent(flow.rx_pause, 1)),
        Column(title="pause out", unit="%", value=lambda flow: _percent(flow.tx_pause, 1)),
        Column(
            title="CNP in",
            unit="/s",
            value=lambda flow: text_or_unknown(flow.cnp_handled, per_second),
        ),
        Column(
            title="CNP out",
            unit="/s",
            value=lambda flow: text_or_unknown(flow.cnp_sent, per_second),
        ),
        Column(
            title="ECN", unit="/s", value=lambda flow: text_or_unknown(flow.ecn_marked, per_second)
        ),
        Column(title="lost", unit="/s", value=lambda flow: text_or_unknown(flow.lost, per_second)),
        Column(
            title="drops", unit="/s", value=lambda flow: text_or_unknown(flow.dropped, per_second)
        ),
        Column(title="state", value=lambda flow: flow.state or "", left=True),
    ]


def _percent(value: float | None, full: float | None) -> str:
    return "-" if value is None else percent_text(value, full)


def table(watched: WatchInterval, width: int | None = None) -> str:
    local = datetime.fromisoformat(watched.at).astimezone()
    time = f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03}"
    head = f"{watched.host}  {time}  {_seconds(watched.seconds)}"
    if watched.missed:
        head += f"  {watched.missed} missed"
    resent = watched.tcp.get("RetransSegs")
    if resent is not None:
        head += f"  TCP retransmits {per_second(resent)}/s"
    matches = "".join(
        f"{match.verdict.value.upper():<5} {match.link}: {match.message}: {match.seen}"
        f"  [{match.pattern}]\n"
        for match in watched.findings
    )
    shown = [column for column in columns() if is_shown(column, watched.links)]
    return f"{head}\n{aligned(shown, watched.links, width, DROP_ORDER)}{wrapped(matches, width)}"


def is_shown(column: Column, flows: list[LinkFlow]) -> bool:
    """Whether a column is always shown, or any link has a value in it."""
    if column.title in ALWAYS:
        return True
    return any(column.value(flow) not in ("-", "") for flow in flows)


def saved(intervals: Sequence[WatchInterval], width: int | None) -> str:
    """The last interval of a file."""
    head = f"the last of {len(intervals)} intervals\n" if len(intervals) > 1 else ""
    return head + table(intervals[-1], width)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.995 else f"{1000 * seconds:.0f} ms"


def screen(watched: WatchInterval, width: int | None, height: int) -> str:
    """The table and notes on what could not be read, in place of the previous one."""
    notes = "".join(f"note: {reason}\n" for reason in watched.unread)
    return redrawn(table(watched, width) + wrapped(notes, width), height)


def line(watched: WatchInterval) -> bytes:
    """One object of JSON Lines."""
    return msgspec.json.encode(watched) + b"\n"


Part = LinkFlow | SlaveFlow


def text(watched: WatchInterval, *, first: bool) -> str:
    """The blocks of one interval. The port is named if there is more than one."""
    ports = [flow for flow in watched.links if flow.kind in PORTS]
    blocks = [_block(watched, flow, named=len(ports) > 1) for flow in ports]
    return (LINE if first else "") + "".join(f"{block}{LINE}" for block in blocks)


def _block(watched: WatchInterval, flow: LinkFlow, *, named: bool) -> str:
    seconds = watched.seconds
    parts: tuple[Part, ...] = (flow, *flow.slaves)
    slaves = f" ({'/'.join(slave.name for slave in flow.slaves)})" if flow.slaves else ""
    lines = [_time(watched.at)]
    if named:
        lines.append(f"interface: {flow.bond or flow.name}{slaves}")
    lines.append(f"tx_rate: {_join([_gbit(part.tx) for part in parts])}")
    lines.append(f"rx_rate: {_join([_gbit(part.rx) for part in parts])}")
    for quantity in ("pause", "pause_duration"):
        for direction in DIRECTIONS:
            pauses = [_pauses(part, direction, quantity, seconds) for part in parts]
            lines.append(f"{direction}_{quantity}: {_join(pauses)}")
    for name, key in COUNTS.items():
        count = _count(flow.counters.get(key), 1 if key == LEVEL else seconds)
        lines.append(f"{name}: {count}")
    for direction in DIRECTIONS:
        rates = [_gbit(part.counters.get(f"{direction}_prio0_bytes")) for part in parts]
        lines.append(f"{direction}_rate_prio0: {_join(rates)}")
    lines += _host_lines(watched)
    return "".join(f"{line}\n" for line in lines)


def _host_lines(watched: WatchInterval) -> list[str]:
    """The lines that are the same for all ports: TCP, processors and memory."""
    resent, sent = watched.tcp.get("RetransSegs"), watched.tcp.get("OutSegs")
    share = "-"
    if resent is not None and sent is not None:
        share = f"{resent / sent if sent else 0:.4g}"
    free = watched.free_memory_bytes
    return [
        f"tcp_segs_retrans: {_count(resent, watched.seconds)}",
        f"tcp_retrans_rate: {share}",
        f"cpu_usage: {'-' if watched.cpu is None else f'{100 * watched.cpu:.2f}%'}",
        f"free_mem: {'-' if free is None else f'{free // 1024} kB'}",
    ]


def _time(at: str) -> str:
    local = datetime.fromisoformat(at).astimezone()
    return f"{local.year}-{local.month}-{local.day} {local:%H:%M:%S %Z}"


def _join(values: list[str]) -> str:
    """The port's value, and in parentheses those of a bond's slaves."""
    port, *slaves = values
    return port + (f" ({'/'.join(slaves)})" if slaves else "")


def _gbit(bytes_per_s: float | None) -> str:
    return "-" if bytes_per_s is None else f"{bytes_per_s * 8 / 1e9:.3f}"


def _count(per_s: float | None, seconds: float) -> str:
    return "-" if per_s is None else str(round(per_s * seconds))


def _pauses(part: Part, direction: str, quantity: str, seconds: float) -> str:
    """The pauses of all priorities if any are known, else of the whole link; in us."""
    counters = part.counters
    names = [f"{direction}_prio{number}_{quantity}" for number in range(8)]
    by_priority = [counters[name] for name in names if name in counters]
    pauses = counters.get(f"{direction}_global_{quantity}")
    pauses = counters.get(f"{direction}_{quantity}_ctrl_phy", pauses)
    if by_priority and (pauses is None or any(by_priority)):
        pauses = sum(by_priority)
    return _count(pauses, seconds)
