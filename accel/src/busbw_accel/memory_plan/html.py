"""A plan of where to keep a model's states as parts of a page."""

from xml.etree.ElementTree import Element

from busbw.ui.html.bars import Bar, LimitLine, bar_chart
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table
from busbw_accel.memory_plan.types import DROP_ORDER, GB, StatesPlan, Way, advice, columns, header

PARTS = ("weights", "states", "gradients", "activations", "layer", "scores")


def parts(plan: StatesPlan) -> list[Element]:
    """The memory of each way on the GPU, the table, and what is recommended."""
    limit = LimitLine(
        plan.machine.gpu_memory, f"memory of the GPU, {plan.machine.gpu_memory / GB:.1f}"
    )
    bars = list(map(_bar, plan.ways))
    return [
        *prose(header(plan)),
        *prose(advice(plan, "")),
        bar_chart("GPU memory, GB", bars, PARTS, limit),
        column_table(columns(plan), plan.ways, "Ways to keep the states", DROP_ORDER),
    ]


def _bar(way: Way) -> Bar:
    lengths = [getattr(way.memory, part) for part in PARTS]
    return Bar(way.method, lengths, f"{way.memory.gpu / GB:.1f}")
