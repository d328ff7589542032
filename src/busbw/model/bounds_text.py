"""The bounds of a collective as text: a line for each algorithm."""

from busbw.core.sizes import counted, format_size
from busbw.model.types import AlgorithmLevels, Bounds
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, text_or_unknown

DROP_ORDER = ("limited by", "protocol")


def columns(bounds: Bounds) -> list[Column]:
    """Three rates of each algorithm. Their values take an AlgorithmLevels."""

    def chosen(level: AlgorithmLevels) -> str:
        return f"{level.algorithm} *" if level.algorithm == bounds.chosen else level.algorithm

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


def text(bounds: Bounds, release: str, width: int | None = None) -> str:
    """The table of bounds, its title and notes; `release` is the constants' first NCCL release."""
    table = aligned(columns(bounds), bounds.levels, width, DROP_ORDER)
    return f"{title(bounds)}\n\n{table}\n{wrapped(meaning(bounds, release), width)}"


def title(bounds: Bounds) -> str:
    """`the most busbw that is possible on 8 hosts`."""
    return f"the most busbw that is possible on {counted(bounds.hosts, 'host')}"


def meaning(bounds: Bounds, release: str) -> str:
    """What the columns mean, and the bound of any algorithm."""
    chosen = "it has no model of this collective"
    if bounds.chosen:
        chosen = f"* NCCL takes {bounds.chosen}"
    foot = (
        "links = bound at the rates of the links; data = bound at what they carry of data, without"
        " headers\n"
        f"NCCL  = what the cost model of NCCL from {release} on expects of"
        f" {format_size(bounds.size_bytes)}; {chosen}\n"
    )
    if bounds.endpoint:
        foot += (
            f"any algorithm without reduction in switches: {bandwidth_text(bounds.endpoint.busbw)}"
            " GB/s at the rates of the links\n"
        )
    return foot
