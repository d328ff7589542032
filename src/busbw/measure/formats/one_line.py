"""One line for a run, for schedulers' prologs and monitors."""

from busbw.core.cells import every, headline
from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.ui.number_formats import busbw_text, no_headline, percent_text, problems


def footer(result: Result) -> str:
    """`all_reduce on 8 ranks: busbw 476.20 GB/s +-0.3 % at 8 GiB, 105.8 % of the ideal; data
    checked`.
    """
    found = headline(result)
    if found is None:
        text = f"busbw unknown: {no_headline(result)}"
    else:
        text = f"busbw {busbw_text(found)} at {format_size(found.row.size_bytes)}"
        text += (
            f", {percent_text(found.busbw, result.ideal.busbw)} % of the ideal"
            if result.ideal
            else ""
        )
    checked = (
        "data checked"
        if any(one.cell.wrong is not None for one in every(result))
        else "data not checked"
    )
    return (
        f"{result.spec.collective} on {result.world.ranks} ranks: {text};"
        f" {'; '.join(problems(result)) or checked}\n"
    )
