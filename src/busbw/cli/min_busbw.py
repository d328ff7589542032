"""`--min-busbw` and `--min-percent`: a run that does not reach them ends with exit code 1, and one
that cannot be judged with 3.
"""

import math
from dataclasses import dataclass

import click

from busbw.cli.options.parameters import Rate, Share
from busbw.cli.options.shared import Decorator, options
from busbw.core.cells import Figure, headline
from busbw.core.errors import Exit, NoMeasurement
from busbw.core.rates import BUSBW_EXAMPLE
from busbw.core.result import Ideal, Outcome, Result
from busbw.core.sizes import format_size
from busbw.model.findings import why_no_ideal
from busbw.ui.number_formats import bandwidth_text, busbw_text, no_headline, percent_text

GB = "GB/s"
minimum_options: Decorator = options(
    click.option(
        "--min-busbw",
        type=Rate(BUSBW_EXAMPLE),
        help=(
            "exit code 1 if the largest precise busbw is below this, 3 if none is precise: 300GB/s"
        ),
    ),
    click.option(
        "--min-percent",
        type=Share(0, 10),
        help="exit code 1 if the largest precise busbw is below this part of the ideal: 80%",
    ),
)


@dataclass(frozen=True, slots=True)
class Minimum:
    """What the largest busbw must reach: `busbw` in bytes per second, `share` of the ideal; None if
    it is not required.
    """

    busbw: float | None
    share: float | None

    def refuse(self, result: Result) -> None:
        """NoMeasurement, before anything is measured, if a share of an unknown ideal is
        required.
        """
        if self.share is not None and result.ideal is None:
            reason = why_no_ideal(result, result.topology)
            raise NoMeasurement(
                f"--min-percent {100 * self.share:g}%: there is no ideal to compare with: {reason}",
                f"set it, like --ideal {BUSBW_EXAMPLE}, or use --min-busbw {BUSBW_EXAMPLE}",
            )

    def judge(self, result: Outcome | None) -> tuple[Exit, str]:
        """The exit code and why; 3 if no cell is precise enough to be judged. A process that has no
        result is not judged.

        Only cells that reached their precision are judged, and with precise timing only those with
        an interval.
        """
        if not isinstance(result, Result) or not result.rows:
            return Exit.OK, ""
        if self.busbw is None and self.share is None:
            return Exit.OK, ""
        required = "--min-busbw" if self.share is None else "--min-percent"
        figure = headline(result)
        if figure is None:
            return Exit.UNKNOWN, f"{required} cannot be judged: {no_headline(result)}"
        text = f"busbw {busbw_text(figure)} at {format_size(figure.row.size_bytes)}"
        if figure.cell.stopped and figure.half_width == math.inf:
            reason = f"{required} cannot be judged: {text}; give more --iters, or leave it out"
            return Exit.UNKNOWN, reason
        return self._compare(figure, result.ideal, text)

    def _compare(self, figure: Figure, ideal: Ideal | None, text: str) -> tuple[Exit, str]:
        if self.busbw is not None and figure.busbw < self.busbw:
            return Exit.BAD, f"{text} is below --min-busbw {bandwidth_text(self.busbw)} {GB}"
        if self.share is None or ideal is None or figure.busbw >= self.share * ideal.busbw:
            return Exit.OK, ""
        percent = percent_text(figure.busbw, ideal.busbw)
        required = f"--min-percent {100 * self.share:g}%"
        return Exit.BAD, f"{text} is {percent} % of the ideal, below {required}"
