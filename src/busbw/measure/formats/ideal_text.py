"""How a busbw compares with the ideal and with larger cells, in words."""

from busbw.core.cells import Figure, larger_uncertain
from busbw.core.result import Ideal, Result
from busbw.core.sizes import format_size
from busbw.model.fabric import lab_burst
from busbw.model.series import where_text
from busbw.ui.number_formats import busbw_text, percent_text


def share_of_ideal(figure: Figure, ideal: Ideal, name: str = "ideal") -> str:
    """`15.7 % of ideal`. A size that a lab's limiter passes at full speed has no share."""
    burst = lab_burst(ideal)
    if figure.row.size_bytes <= burst:
        return f"within the {format_size(burst)} that the lab passes at full speed"
    return f"{percent_text(figure.busbw, ideal.busbw)} % of {name}"


def larger_text(result: Result) -> str:
    """`; unstable cells reach 2.62 GB/s +-38.0 % at 1 MiB in place`: what is larger than the
    headline, but less certain; empty if nothing is.
    """
    larger = larger_uncertain(result)
    if larger is None:
        return ""
    kind = "unstable" if larger.cell.stopped == "unstable" else "less certain"
    return f"; {kind} cells reach {busbw_text(larger)} at {where_text(larger)}"
