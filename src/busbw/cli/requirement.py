"""`--min-busbw` and `--min-percent`: a run that does not reach them ends with exit code 1."""

from dataclasses import dataclass

import click

from busbw.cli.parameters import Share
from busbw.cli.shared_options import Decorator, options
from busbw.core.cells import every, peak
from busbw.core.errors import UsageError
from busbw.core.exits import Exit
from busbw.core.result import AnyResult, Result
from busbw.core.sizes import format_size
from busbw.views.formats import bandwidth_text, percent_text

GB = "GB/s"
least_options: Decorator = options(
    click.option("--min-busbw", default="", metavar="GB/S", help="exit code 1 if the largest busbw is below this: 300GB/s"),
    click.option("--min-percent", type=Share(0, 10), help="exit code 1 if the largest busbw is below this part of the ideal: 80%"),
)


@dataclass(frozen=True, slots=True)
class Least:
    """What the largest busbw must reach: bytes per second, a part of the ideal; None where it is not asked for."""

    busbw: float | None
    share: float | None

    def judge(self, result: AnyResult | None) -> tuple[Exit, str]:
        """The exit code and why; 3 where the ideal is asked for and unknown. A process that has no result is not judged."""
        if not isinstance(result, Result) or (self.busbw is None and self.share is None):
            return Exit.OK, ""
        found = peak(every(result))
        if found is None:
            return Exit.UNKNOWN, "nothing was measured that could reach the least busbw"
        figure = f"busbw {bandwidth_text(found.busbw)} {GB} at {format_size(found.row.size_bytes)}"
        if self.busbw is not None and found.busbw < self.busbw:
            return Exit.BAD, f"{figure} is below --min-busbw {bandwidth_text(self.busbw)} {GB}"
        if self.share is not None and result.ideal is None:
            return Exit.UNKNOWN, f"{figure} cannot be judged by --min-percent: the ideal is unknown; give --ideal {GB}"
        if self.share is not None and result.ideal is not None and found.busbw < self.share * result.ideal.busbw:
            percent = percent_text(found.busbw, result.ideal.busbw)
            return Exit.BAD, f"{figure} is {percent} % of the ideal, below --min-percent {100 * self.share:g}%"
        return Exit.OK, ""


def least(busbw: str, share: float | None) -> Least:
    """From the options; UsageError for a busbw that is no number above 0."""
    if not busbw:
        return Least(None, share)
    try:
        value = float(busbw.removesuffix(GB).strip())
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"--min-busbw: '{busbw}' is not a bus bandwidth", "give GB/s as a number above 0, like --min-busbw 300GB/s")
    return Least(value * 1e9, share)
