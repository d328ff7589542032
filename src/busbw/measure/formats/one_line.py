"""One line: of a run, for schedulers' prologs and monitors, and of a row that is not final yet."""

from busbw.core.cells import all_figures, figures, headline, unchecked_sizes
from busbw.core.result import Result, ResultRow
from busbw.core.sizes import counted, format_size
from busbw.core.unseen import escape_line
from busbw.measure.formats.ideal_text import larger_text, share_of_ideal
from busbw.ui.number_formats import bandwidth_text, busbw_text, no_headline, problems, time_text


def render(result: Result) -> str:
    """The best figure of the run, and what went wrong.

    `all_reduce on 8 ranks: busbw 476.20 GB/s +-0.3 % at 8 GiB, 105.8 % of the ideal; data checked`
    """
    peak = headline(result)
    if peak is None:
        text = f"busbw unknown: {no_headline(result)}"
    else:
        text = f"busbw {busbw_text(peak)} at {format_size(peak.row.size_bytes)}"
        if result.ideal:
            text += f", {share_of_ideal(peak, result.ideal, 'the ideal')}"
        text += larger_text(result)
    end = "; ".join(problems(result)) or _checked(result)
    ranks = result.world.ranks  # 0: unknown, in a log
    where = f" on {counted(ranks, 'rank')}" if ranks else ""
    return escape_line(f"{result.spec.collective}{where}: {text}; {end}") + "\n"


def first_look(row: ResultRow) -> str:
    """`64 MiB takes 44.37 ms, busbw 0.02 GB/s`."""
    figure = figures(row)[0]
    busbw = f"busbw {bandwidth_text(figure.busbw)} GB/s"
    return f"{format_size(row.size_bytes)} takes {time_text(figure.time_s)}, {busbw}"


def _checked(result: Result) -> str:
    if all(figure.cell.wrong is None for figure in all_figures(result)):
        return "data not checked"
    unchecked = len(unchecked_sizes(result))
    return f"data of {counted(unchecked, 'size')} not checked" if unchecked else "data checked"
