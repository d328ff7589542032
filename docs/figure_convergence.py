"""Draws the loss of a language model against steps and time, for
docs/how-to/train-over-slow-networks.md.

Run by hand; SVG is committed.

`figure_convergence.py RECORD.json`, of benchmarks/convergence_text.py.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

# What is drawn, in which color, and how it is called.
METHODS = {
    "none": ("#7a7a7a", "DDP as it is"),
    "bf16": ("#d98c2b", "bf16"),
    "int8": ("#8a5fbf", "int8"),
    "powersgd": ("#3b7dd8", "PowerSGD, rank 4"),
    "powersgd+matrix_rank=8": ("#6fc3e0", "rank 8"),
    "topk+ratio=0.1": ("#5a9e6f", "top-k 10 %"),
    "topk": ("#c94f4f", "top-k 1 %"),
}
WIDTH, HEIGHT, TOP, BOTTOM = 760, 330, 48, 258
PANELS, PANEL = ((52, "steps"), (414, "seconds")), 320
MOST = 5.0  # bits a byte; before that all fall alike
STYLE = """
 text { font: 12px sans-serif; fill: currentColor } .dim { opacity: .65 }
 .axis { stroke: currentColor; opacity: .25 }
 .head { font-weight: bold } path { fill: none; stroke-width: 1.8; stroke-linejoin: round }
"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """A label."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line of an axis."""
    return f'<line class="axis" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def mean(runs: list[dict[str, Any]], what: str) -> list[float]:
    """Over seeds, at each measurement."""
    return [statistics.fmean(values) for values in zip(*(run[what] for run in runs), strict=True)]


def ticks(most: float) -> list[float]:
    """About five round numbers up to it."""
    step = next(
        size * 10**power
        for power in range(-1, 6)
        for size in (1, 2, 5)
        if most / (size * 10**power) <= 6
    )
    return [step * number for number in range(int(most / step) + 1)]


def panel(
    left: float, unit: str, curves: dict[str, tuple[list[float], list[float]]], least: float
) -> list[str]:
    """Axes, and a curve for each method."""
    furthest = max(xs[-1] for xs, _ in curves.values())

    def at(x: float, y: float) -> tuple[float, float]:
        return round(left + PANEL * x / furthest, 1), round(
            BOTTOM - (y - least) / (MOST - least) * (BOTTOM - TOP), 1
        )

    parts = [
        text(left, 18, f"Loss against {unit}", "head"),
        text(left, 34, "bits a byte of the test, mean of all seeds", "dim"),
    ]
    for value in (value for value in (2, 2.5, 3, 3.5, 4, 4.5, 5) if least <= value <= MOST):
        _, y = at(0, value)
        parts += [line(left, y, left + PANEL, y), text(left - 6, y + 4, f"{value:g}", "dim", "end")]
    for value in ticks(furthest):
        x, _ = at(value, least)
        parts += [
            line(x, BOTTOM, x, BOTTOM + 4),
            text(x, BOTTOM + 18, f"{value:g}", "dim", "middle"),
        ]
    for name, (xs, ys) in curves.items():
        points = [at(x, y) for x, y in zip(xs, ys, strict=True) if y <= MOST]
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        parts.append(
            f'<path d="{path}" stroke="{METHODS[name][0]}"><title>{METHODS[name][1]}</title></path>'
        )
    return [*parts, text(left + PANEL, BOTTOM + 34, unit, "dim", "end")]


def key() -> list[str]:
    """Which color is which method."""
    parts, x = [], float(PANELS[0][0])
    for colour, words in METHODS.values():
        parts.append(
            f'<path d="M{x:g} {HEIGHT - 14} h18" stroke="{colour}"/>'
            + text(x + 24, HEIGHT - 10, words)
        )
        x += 44 + 6.4 * len(words)
    return parts


def drawing(record: dict[str, Any]) -> str:
    """The whole SVG."""
    found = {name: runs for name, runs in record["found"].items() if name in METHODS}
    losses = {name: mean(runs, "bits") for name, runs in found.items()}
    steps = [float(record["every"] * (number + 1)) for number in range(len(losses["none"]))]
    least = min(min(curve) for curve in losses.values()) - 0.05
    parts = panel(*PANELS[0], {name: (steps, curve) for name, curve in losses.items()}, least)
    parts += panel(
        *PANELS[1],
        {name: (mean(found[name], "seconds"), curve) for name, curve in losses.items()},
        least,
    )
    title = (
        "<title>Loss of a language model against steps and against seconds, by each method</title>"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        ' role="img" style="background: white">'
    )
    return f"{head}{title}<style>{STYLE}</style>" + "\n".join([*parts, *key()]) + "</svg>\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit((__doc__ or "").strip())
    record = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(__file__).with_name("how-to").joinpath("loss.svg").write_text(
        drawing(record), encoding="utf-8"
    )
