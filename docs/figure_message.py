"""Draws a message's way through the net plugin, for docs/explanation/net-plugin.md.

Run by hand; the SVG is committed.
"""

from pathlib import Path

WIDTH, HEIGHT = 760, 330
STYLE = """
 text { font: 12px sans-serif; fill: currentColor } .dim { opacity: .65 }
 .frame { fill: none; stroke: currentColor; opacity: .45 }
 .data { fill: #3b7dd8 } .head { fill: #d98c2b } .small { fill: #5a9e6f }
 .line { stroke: currentColor; fill: none }
 .back { stroke: currentColor; fill: none; stroke-dasharray: 4 3 }
"""
CHUNKS = ((0, 1), (1, 0), (2, 2), (3, 1))  # number, the stream that happened to be free
STREAMS_Y = (150, 185, 220)
SENDER, RECEIVER = 250, 520


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """A label."""
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def bar(kind: str, x: float, y: float, width: float, height: float = 16) -> str:
    """A piece of data."""
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="2"/>'


def hosts() -> list[str]:
    """The two processes and who works in them."""
    parts = []
    for x, name in ((10, "sending process"), (RECEIVER + 10, "receiving process")):
        parts.append(
            f'<rect class="frame" x="{x}" y="26" width="220" height="262" rx="6"/>'
            + text(x + 110, 18, name, "dim", "middle")
        )
    parts.append(
        text(20, 46, "NCCL's thread: isend, test")
        + text(RECEIVER + 20, 46, "NCCL's thread: irecv, test")
    )
    parts.append(
        text(20, 136, "I/O threads of the process")
        + text(RECEIVER + 20, 136, "I/O threads of the process")
    )
    return parts


def small() -> list[str]:
    """The upper way: at most 16 KiB."""
    y = 72
    return [
        text(20, y - 8, "up to 16 KiB: copied, sent here", "dim"),
        bar("head", 40, y, 8) + bar("small", 48, y, 26),
        f'<path class="line" d="M80 {y + 8} H{RECEIVER + 30}" marker-end="url(#to)"/>',
        bar("head", 360, y, 8) + bar("small", 368, y, 26),
        text(375, y - 8, "a stream of its own", "dim", "middle"),
        bar("small", RECEIVER + 40, y, 26),
        text(RECEIVER + 74, y + 12, "read in test", "dim"),
    ]


def chunks() -> list[str]:
    """The lower way: chunks on the streams that are free."""
    parts = [text(20, 262, "a message of four chunks", "dim")]
    for number, stream in CHUNKS:
        y, x = STREAMS_Y[stream] - 8, 300 + 34 * number
        parts.append(
            bar("data", 40 + 34 * number, 268, 30)
            + text(55 + 34 * number, 281, str(number), "", "middle")
        )
        parts.append(
            bar("head", x, y, 6)
            + bar("data", x + 6, y, 24)
            + text(x + 18, y + 13, str(number), "", "middle")
        )
        parts.append(
            bar("data", RECEIVER + 40 + 34 * number, 268, 30)
            + text(RECEIVER + 55 + 34 * number, 281, str(number), "", "middle")
        )
    for y in STREAMS_Y:
        parts.append(
            f'<path class="line" d="M{SENDER - 40} {y} H296 M436 {y} H{RECEIVER + 30}"'
            ' marker-end="url(#to)"/>'
        )
        parts.append(text(190, y + 4, "pulls", "dim", "end"))
    parts.append(text(RECEIVER + 20, 262, "place known: no copy between", "dim"))
    parts.append(
        f'<path class="back" d="M{RECEIVER + 10} 306 H{SENDER - 30}" marker-end="url(#to)"/>'
    )
    parts.append(
        text(375, 322, "complete: then isend is done, and nothing goes again", "dim", "middle")
    )
    return parts


def drawing() -> str:
    """The whole SVG."""
    tip = '<path d="M0 0 L7 3 L0 6 z" fill="gray"/>'
    arrow = (
        '<defs><marker id="to" markerWidth="7" markerHeight="7" refX="6" refY="3"'
        f' orient="auto">{tip}</marker></defs>'
    )
    title = "<title>A small message and a large one between two processes</title>"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        ' role="img" style="background: white">'
    )
    return (
        f"{head}{title}<style>{STYLE}</style>{arrow}"
        + "\n".join([*hosts(), *small(), *chunks()])
        + "</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_name("explanation").joinpath("message-way.svg").write_text(
        drawing(), encoding="utf-8"
    )
