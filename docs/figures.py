"""Draws the figure of "how to read busbw": one batch of held operations on two ranks.

Run by hand; the SVG is committed.
"""

from pathlib import Path

WIDTH, LEFT, ROW = 760, 92, 34
HOST, QUEUE = (("h", 0, 26), ("h", 34, 26), ("h", 68, 26)), 150
# start on rank 0, length, how much later rank 1 begins
OPERATIONS = ((176, 84, 12), (322, 84, 0), (452, 90, 7))
FENCES = ((150, 20), (292, 24), (428, 18))
STYLE = """
 text { font: 12px sans-serif; fill: currentColor } .dim { opacity: .65 } .op { fill: #3b7dd8 }
 .fence { fill: #b8b8b8 }
 .host { fill: #d98c2b } .line { stroke: currentColor; stroke-width: 1 }
 .thin { stroke: currentColor; stroke-dasharray: 3 3; opacity: .5 }
"""


def box(kind: str, x: float, y: float, width: float, title: str) -> str:
    """A labeled bar."""
    return (
        f'<rect class="{kind}" x="{LEFT + x}" y="{y}" width="{width}" height="18"'
        f' rx="2"><title>{title}</title></rect>'
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """A label."""
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def drawing() -> str:
    """The whole SVG."""
    parts = [
        text(8, 34, "host"),
        text(8, 34 + 2 * ROW, "GPU of rank 0"),
        text(8, 34 + 3 * ROW, "GPU of rank 1"),
    ]
    for _, start, width in HOST:
        parts.append(
            box("host", start, 20, width, "the host enqueues fence, mark, operation, mark")
        )
    parts.append(text(LEFT + 104, 34, "... then releases the queue", "dim"))
    parts.append(
        f'<line class="thin" x1="{LEFT + QUEUE - 4}" y1="44" x2="{LEFT + QUEUE - 4}" y2="148"/>'
    )
    for (start, length, late), (fence, width) in zip(OPERATIONS, FENCES, strict=True):
        end = start + length
        for rank, begin in ((0, start), (1, start + late)):
            y = 20 + (2 + rank) * ROW
            parts.append(box("fence", fence, y, width, "fence: a tiny collective"))
            parts.append(box("op", begin, y, end - begin, f"the operation as rank {rank} times it"))
    start, length, late = OPERATIONS[0]
    y = 158
    parts.append(
        f'<line class="line" x1="{LEFT + start}" y1="{y}" x2="{LEFT + start + length}" y2="{y}"/>'
    )
    parts.append(text(LEFT + start + length / 2, y + 15, "longest: a sample of time", "", "middle"))
    parts.append(
        f'<line class="line" x1="{LEFT + start + late}" y1="{y + 26}" x2="{LEFT + start + length}"'
        f' y2="{y + 26}"/>'
    )
    parts.append(
        text(LEFT + start + length / 2, y + 41, "shortest: the operation alone", "", "middle")
    )
    parts.append(
        f'<line class="line" x1="{LEFT}" y1="54" x2="{LEFT + 26}" y2="54"/>'
        + text(LEFT, 68, "launch")
    )
    parts.append(text(LEFT + 330, 173, "skew = median longest - median shortest", "dim"))
    parts.append(text(LEFT + 330, 191, "rank 1 began late: its own time is the shortest", "dim"))
    parts.append(
        box("fence", 430, 20, 18, "fence")
        + text(LEFT + 454, 34, "fence")
        + box("op", 510, 20, 18, "operation")
    )
    parts.append(text(LEFT + 534, 34, "operation"))
    title = "<title>One batch: enqueued while held back, then run</title>"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 208" width="{WIDTH}"'
        ' role="img" style="background: white">'
    )
    return f"{head}{title}<style>{STYLE}</style>" + "\n".join(parts) + "</svg>\n"


if __name__ == "__main__":
    Path(__file__).with_name("explanation").joinpath("held-batch.svg").write_text(
        drawing(), encoding="utf-8"
    )
