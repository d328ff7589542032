"""An interval of a watch: a line for each link, then the counter patterns found; or a line of
JSON.
"""

from datetime import datetime

import msgspec

from busbw.core.finding import Verdict
from busbw.core.link_samples import Watched, per_second
from busbw.core.unseen import seen
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, known, percent_text

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
