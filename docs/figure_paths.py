"""Draws how streams spread over equal paths, for docs/explanation/net-plugin.md, from the recorded
run.

Run by hand; SVG is committed.
"""

import json
import statistics
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parents[1] / "benchmarks" / "net_paths_202611" / "paths.json"
STREAMS = 8
WIDTH, HEIGHT, TOP, BOTTOM = 760, 316, 62, 236
PANELS = (54, 300, 546)  # where each begins
PANEL, GROUPS = 200, (36, 100, 164)  # its width; the middle of what belongs to 2, 4 and 8 paths
GRID = (0, 0.25, 0.5, 0.75, 1)
DRAWN = (*GRID, 1 / 8)  # and the even share of 8 paths
STYLE = """
 text { font: 12px sans-serif; fill: currentColor } .dim { opacity: .65 }
 .axis { stroke: currentColor; opacity: .25 }
 .head { font-weight: bold } .even { stroke: currentColor; stroke-width: 2; stroke-dasharray: 3 2 }
 .busbw { fill: #3b7dd8; stroke: #3b7dd8 } .kernel { fill: #d98c2b; stroke: #d98c2b }
 .range { stroke-width: 2; opacity: .55 }
 .alike { fill: #5a9e6f; stroke: #5a9e6f } text.busbw, text.kernel, text.alike { stroke: none }
"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """A label."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """A line."""
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def height(share: float) -> float:
    """Where a share from 0 to 1 stands."""
    return round(BOTTOM - share * (BOTTOM - TOP), 1)


def frame(left: float, title: str, below: str) -> list[str]:
    """Title, axes and what belongs to which number of paths."""
    parts = [text(left, 18, title, "head"), text(left, 34, below, "dim")]
    for share in GRID:
        y = height(share)
        parts += [
            line("axis", left, y, left + PANEL, y),
            text(left - 5, y + 4, f"{share * 100:g} %" if share else "0", "dim", "end"),
        ]
    return parts + [
        text(left + x, BOTTOM + 18, f"{2**n} paths", "", "middle") for n, x in enumerate(GROUPS, 1)
    ]


def range_of(kind: str, x: float, shares: list[float], after: int) -> list[str]:
    """Least to most as a line, the mean as a point with its figure to the left (-1) or right (1),
    where no line strikes it through.

    The figure is exact where all shares are alike.
    """
    mean = statistics.mean(shares)
    least, most, y = height(min(shares)), height(max(shares)), height(mean)
    beside = max(
        (y + 4, y - 3, y + 11), key=lambda at: min(abs(at - 4 - height(drawn)) for drawn in DRAWN)
    )
    parts, words = [line(f"{kind} range", x, least, x, most)], f"{100 * mean:.0f}"
    if min(shares) == max(shares):
        parts, words = [], f"{100 * mean:g}"
    parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="4"/>')
    return [*parts, text(x + 7 * after, beside, words, kind, "start" if after > 0 else "end")]


def spread(left: float, chosen_by: str, rows: list[dict[str, Any]]) -> list[str]:
    """The fullest path's share of the streams."""
    parts = []
    for number, x in enumerate(GROUPS, 1):
        parts.append(
            line("even", left + x - 26, height(1 / 2**number), left + x + 26, height(1 / 2**number))
        )
        for ports, after in (("busbw", -1), ("kernel", 1)):
            (row,) = (
                row
                for row in rows
                if (row["hash"], row["paths"], row["streams"], row["ports"])
                == (chosen_by, 2**number, STREAMS, ports)
            )
            parts += range_of(
                ports, left + x + 6 * after, [count / STREAMS for count in row["fullest"]], after
            )
    return parts


def filled(left: float, loads: list[dict[str, Any]]) -> list[str]:
    """What all links carried, and what they would if every stream carried as much as any other."""
    parts = []
    for number, x in enumerate(GROUPS, 1):
        ours = [
            load for load in loads if load["paths"] == 2**number and sum(load["streams"]) == STREAMS
        ]
        parts += range_of(
            "busbw", left + x - 6, [statistics.mean(load["filled"]) for load in ours], -1
        )
        parts += range_of(
            "alike",
            left + x + 6,
            [STREAMS / load["paths"] / max(load["streams"]) for load in ours],
            1,
        )
    return parts


def key() -> list[str]:
    """What the marks mean."""
    y, between = BOTTOM + 44, PANELS[2] - 22
    dot = '<circle class="{}" cx="{}" cy="{}" r="4"/>'
    return [
        dot.format("busbw", PANELS[0] + 4, y - 4)
        + text(PANELS[0] + 14, y, "ports chosen by busbw"),
        dot.format("kernel", PANELS[0] + 164, y - 4) + text(PANELS[0] + 174, y, "by the kernel"),
        line("even", PANELS[1] + 20, y - 4, PANELS[1] + 52, y - 4)
        + text(PANELS[1] + 60, y, "an even share"),
        dot.format("busbw", between + 4, y - 4)
        + text(between + 14, y, "chunks go to the stream that is free"),
        dot.format("alike", between + 4, y + 15)
        + text(between + 14, y + 19, "the same, if all streams carried alike"),
        text(PANELS[0], y + 19, "point: mean of all jobs; line: least to most", "dim"),
    ]


def drawing() -> str:
    """The whole SVG."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    jobs = record["host"]["jobs"]
    rounds = sum(load["paths"] == 2 and sum(load["streams"]) == STREAMS for load in record["loads"])
    parts = [
        *frame(PANELS[0], "Bond, layer3+4", f"fullest slave, {STREAMS} streams, {jobs} jobs"),
        *spread(PANELS[0], "bond", record["spread"]),
        *frame(
            PANELS[1], "Equal-cost routes of Linux", f"fullest path, {STREAMS} streams, {jobs} jobs"
        ),
        *spread(PANELS[1], "route", record["spread"]),
        *frame(
            PANELS[2],
            "What the routes carry",
            f"of all links' rate, {STREAMS} streams, {rounds} jobs",
        ),
        *filled(PANELS[2], record["loads"]),
        *key(),
    ]
    title = (
        "<title>Shares of the fullest path with ports chosen by busbw and by the kernel, and how"
        " full the links are</title>"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        ' role="img" style="background: white">'
    )
    return f"{head}{title}<style>{STYLE}</style>" + "\n".join(parts) + "</svg>\n"


if __name__ == "__main__":
    Path(__file__).with_name("explanation").joinpath("paths.svg").write_text(
        drawing(), encoding="utf-8"
    )
