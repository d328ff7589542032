"""One line for a run, for schedulers' prologs and monitors."""

from busbw.core.cells import every, peak
from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.views.formats import bandwidth_text, percent_text, problems


def footer(result: Result) -> str:
    """`all_reduce on 8 ranks: busbw 476.20 GB/s at 8 GiB, 105.8 % of the ideal; data checked`."""
    found = peak(every(result))
    text = f"{result.spec.collective} on {result.world.ranks} ranks: "
    if found is None:
        return f"{text}nothing measured\n"
    text += f"busbw {bandwidth_text(found.busbw)} GB/s at {format_size(found.row.size_bytes)}"
    if result.ideal:
        text += f", {percent_text(found.busbw, result.ideal.busbw)} % of the ideal"
    checked = "data checked" if any(one.cell.wrong is not None for one in every(result)) else "data not checked"
    return f"{text}; {'; '.join(problems(result)) or checked}\n"
