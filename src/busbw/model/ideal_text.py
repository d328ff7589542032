"""The bounds of a collective for people: a line for each algorithm."""

from busbw.core.sizes import format_size
from busbw.model import explanation_text
from busbw.model.types import Ideals, Level
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, text_or_unknown

DROP_ORDER = ("limited by", "protocol")


def columns(answer: Ideals) -> list[Column]:
    """Three rates of each algorithm. Their values take a Level."""

    def chosen(level: Level) -> str:
        return f"{level.algorithm} *" if level.algorithm == answer.chosen else level.algorithm

    return [
        Column(title="algorithm", value=chosen, left=True),
        Column(title="links", unit="GB/s", value=lambda level: bandwidth_text(level.wire)),
        Column(title="data", unit="GB/s", value=lambda level: bandwidth_text(level.payload)),
        Column(
            title="NCCL",
            unit="GB/s",
            value=lambda level: text_or_unknown(level.planned, bandwidth_text),
        ),
        Column(title="protocol", value=lambda level: level.protocol or "-", left=True),
        Column(title="limited by", value=lambda level: level.link.partition(",")[0], left=True),
    ]


def text(answer: Ideals, width: int | None = None) -> str:
    """The whole text."""
    about, size = answer.described, format_size(answer.size_bytes)
    title = explanation_text.title(answer.collective, about)
    head = f"{title}: the most busbw that is possible\n\n"
    head += "".join(f"{line}\n" for line in explanation_text.links(about))
    chosen = "it has no model of this collective"
    if answer.chosen:
        chosen = f"* NCCL takes {answer.chosen}"
    foot = (
        "links = bound at the rates of the links; data = bound at what they carry of data, without"
        " headers\n"
        f"NCCL  = what the cost model of NCCL from {about.nccl} on expects of {size}; {chosen}\n"
    )
    if answer.endpoint:
        foot += (
            f"any algorithm without reduction in switches: {bandwidth_text(answer.endpoint.busbw)}"
            " GB/s at the rates of the links\n"
        )
    foot += explanation_text.notes(about, [])
    table = aligned(columns(answer), answer.levels, width, DROP_ORDER)
    return f"{wrapped(head, width)}\n{table}\n{wrapped(foot, width)}"
