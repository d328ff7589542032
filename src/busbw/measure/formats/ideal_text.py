"""How a busbw compares with the ideal, in words."""

from busbw.core.cells import Figure
from busbw.core.result import Ideal
from busbw.core.sizes import format_size
from busbw.model.fabric import lab_burst
from busbw.ui.number_formats import percent_text


def share_of_ideal(figure: Figure, ideal: Ideal, name: str = "ideal") -> str:
    """`15.7 % of ideal`. A size that a lab's limiter passes at full speed has no share."""
    burst = lab_burst(ideal)
    if figure.row.size_bytes <= burst:
        return f"within the {format_size(burst)} that the lab passes at full speed"
    return f"{percent_text(figure.busbw, ideal.busbw)} % of {name}"
