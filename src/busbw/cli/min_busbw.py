"""`--min-busbw` and `--min-percent`: a run that does not reach them ends with exit code 1, and one
that cannot be judged with 3.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from busbw.cli.options.minimum import IDEAL, REFERENCE
from busbw.core.cells import Figure, all_figures, decisive, headline, larger_uncertain
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.rates import BUSBW_EXAMPLE
from busbw.core.result import Ideal, Outcome, Result
from busbw.measure.formats.ideal_text import larger_text
from busbw.model.bandwidth_findings import why_no_ideal
from busbw.model.series import where_text
from busbw.ui.number_formats import bandwidth_text, busbw_text, percent_text, range_text

if TYPE_CHECKING:
    from busbw.model.reference.curves import Reference

GB = "GB/s"
MORE_SAMPLES = "allow more time with --max-time, or give more --iters"
RUN_AGAIN = "its samples did not settle, so run again while nothing else uses the machine"


@dataclass(frozen=True, slots=True)
class Minimum:
    """What the largest busbw must reach: `busbw` in bytes per second, `share` of the ideal or of
    the reference; None if it is not required. `reference_file` has the user's own runs.
    """

    busbw: float | None
    share: float | None
    share_of: str = IDEAL
    reference_file: Path | None = None

    def check(self) -> None:
        """UsageError, before anything is started, for options that contradict each other."""
        if self.share_of == REFERENCE and self.share is None:
            raise UsageError("--of reference: --min-percent is not given", "add --min-percent 90%")
        if self.share_of == REFERENCE:
            self._known()  # it can be read

    def refuse(self, result: Result) -> None:
        """NoMeasurement, before anything is measured, if a share of what is unknown is required."""
        if self.share is None:
            return
        if self.share_of == REFERENCE:
            self._refuse_without_reference(result)
        elif result.ideal is None:
            reason = why_no_ideal(result, result.topology)
            raise NoMeasurement(
                f"{self._option}: there is no ideal to compare with: {reason}",
                f"set it, like --ideal {BUSBW_EXAMPLE}, or use --min-busbw {BUSBW_EXAMPLE}",
            )

    def judge(self, result: Outcome | None) -> tuple[Exit, str]:
        """The exit code and why.

        The intervals decide: 0 if all of one reaches what is required, 1 if none has a value that
        does, else 3, also without an interval or a reference. A process that has no result is not
        judged.
        """
        if not isinstance(result, Result) or not result.rows:
            return Exit.OK, ""
        if self.busbw is None and self.share is None:
            return Exit.OK, ""
        figure = headline(result)
        if figure is None:
            return Exit.UNKNOWN, f"{self._option} cannot be judged: its cells have no busbw"
        if self.busbw is not None:
            code, text = _judge(result, self.busbw, self._least)
            if code is not Exit.OK:
                return code, text
        if self.share is None:
            return Exit.OK, ""
        if self.share_of == REFERENCE:
            return self._by_reference(result, figure)
        if result.ideal is None:
            return Exit.OK, ""
        return _judge(result, self.share * result.ideal.busbw, self._option, result.ideal)

    @property
    def _least(self) -> str:
        return f"--min-busbw {bandwidth_text(self.busbw or 0.0)} {GB}"

    @property
    def _option(self) -> str:
        if self.share is None:
            return self._least
        return f"--min-percent {100 * self.share:g}%"

    def _by_reference(self, result: Result, top: Figure) -> tuple[Exit, str]:
        """The verdict on the peak; on what is larger but less certain, if the peak alone fails."""
        verdict = self._by_curves(result, top)
        larger = larger_uncertain(result)
        if verdict[0] is Exit.BAD and larger is not None:
            by_larger = self._by_curves(result, larger)
            return verdict if by_larger[0] is Exit.BAD else by_larger
        return verdict

    def _by_curves(self, result: Result, top: Figure) -> tuple[Exit, str]:
        """The busbw of a size that has a reference: of `top`, or of the largest such size."""
        from busbw.model.reference_verdict import reference_of, share_text, sources

        largest = sorted(
            all_figures(result), key=lambda figure: figure.row.size_bytes, reverse=True
        )
        found = reference_of(result, [top, *largest], self._known())
        if isinstance(found, str):
            return Exit.UNKNOWN, f"{self._option} of the reference cannot be judged: {found}"
        figure, ran, compared = found
        if compared.median is None:
            return Exit.OK, ""
        least = (self.share or 0.0) * compared.median
        share = f" is {share_text(compared, ran)}"
        code, text = _judge_figure(figure, least, self._option, share)
        return code, f"{text} ({sources(ran)})" if text else ""

    def _refuse_without_reference(self, result: Result) -> None:
        """NoMeasurement if no run of the same system and collective is known."""
        from busbw.model.reference_verdict import why_no_reference
        from busbw.model.rule import Run

        reason = "only runs of GPUs over NCCL have one"
        if Run(result, result.topology).over_nccl:
            reason = why_no_reference(result, self._known())
        if reason:
            raise NoMeasurement(
                f"{self._option} of the reference: there is none: {reason}",
                "add a run of a healthy system: busbw reference add RESULT; or leave out --of"
                " reference",
            )

    def _known(self) -> "Reference":
        from busbw.cli.config.reference import known_curves

        return known_curves(self.reference_file)


def _judge(
    result: Result, least: float, option: str, ideal: Ideal | None = None
) -> tuple[Exit, str]:
    """The exit code of a run of which a cell must reach `least`, and why."""
    peak = headline(result)
    assert peak is not None
    figure = decisive(all_figures(result), peak, least)
    share = f" is {percent_text(figure.busbw, ideal.busbw)} % of the ideal" if ideal else ""
    code, text = _judge_figure(figure, least, option, share)
    return code, f"{text}{larger_text(result)}" if code is Exit.BAD else text


def _judge_figure(figure: Figure, least: float, option: str, share: str) -> tuple[Exit, str]:
    """The exit code of a figure that must reach `least`, and why. `share` puts it in relation to
    what is expected.
    """
    reached = figure.reaches(least)
    if reached:
        return Exit.OK, ""
    text = f"busbw {busbw_text(figure)} at {where_text(figure)}{share}"
    if reached is None:
        unstable = figure.cell.stopped == "unstable"
        if not figure.is_vague:
            text += f"; with its interval it may be {range_text(figure)} {GB}"
        advice = RUN_AGAIN if unstable else MORE_SAMPLES
        return Exit.UNKNOWN, f"{option} cannot be judged: {text}; {advice}"
    return Exit.BAD, f"{text}{',' if share else ' is'} below {option}"
