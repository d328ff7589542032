"""The verdict on a run's bandwidth, compared with recorded runs of the same system and job."""

from busbw.core.cells import Figure
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.core.result import Result
from busbw.core.sizes import counted
from busbw.model.fabric import gb
from busbw.model.reference.compared import (
    Compared,
    ComparedRun,
    compare,
    recorded_run,
    same_job,
    why_no_job,
    why_none,
)
from busbw.model.reference.curves import Reference, built_in
from busbw.model.rule import MORE_TIME, Conclusion, Run
from busbw.model.series import Series, where_text

NCCL = "run with NCCL_DEBUG=INFO to see which transport and algorithm NCCL chose"
RUNS_NAMED = 3


def judge(run: Run, line: Series, top: Figure) -> Conclusion | str:
    """The verdict on a series with its peak `top`; a text says why there is no reference."""
    known = run.known() if run.known else built_in()
    found = reference_of(run.result, [top, *sorted(line, key=_size, reverse=True)], known)
    if isinstance(found, str):
        return found
    figure, ran, compared = found
    reaches = "reaches" if figure is top else "is"
    message = f"busbw {reaches} {gb(figure.busbw)} GB/s at {where_text(figure)}, "
    message += f"{share_text(compared, ran)} ({sources(ran)})"
    return _conclude(message, figure, compared)


def reference_of(
    result: Result, figures: list[Figure], known: Reference
) -> tuple[Figure, ComparedRun, Compared] | str:
    """The first of the figures that runs of the same system and job have, and its comparison; a
    text says why there is none.
    """
    try:
        ran = recorded_run(result)
        if isinstance(ran, str):
            return ran
        for figure in figures:
            if not any(curve.busbw(_size(figure)) for curve in same_job(ran, figure, known)):
                continue
            compared = compare(ran, figure, known)
            if compared.median is not None and compared.expected is not None:
                return figure, ran, compared
    except UsageError as error:  # hosts that differ, and systems without a model
        return error.message
    return why_none(ran, known, figures)


def why_no_reference(result: Result, known: Reference) -> str:
    """Why no run is of the system and the collective of a result; empty if one is."""
    try:
        ran = recorded_run(result)
    except UsageError as error:
        return error.message
    return ran if isinstance(ran, str) else why_no_job(ran, known)


def share_text(compared: Compared, ran: ComparedRun) -> str:
    """`91 % of the median of 5 published runs of 1 x 8 H200`."""
    assert compared.median is not None
    count = len(compared.runs)
    if compared.own:
        runs = "your own run" if count == 1 else f"{count} runs of your own"
    else:
        runs = "the published run" if count == 1 else counted(count, "published run")
    of = "" if count == 1 else "the median of "
    return f"{100 * compared.busbw / compared.median:.0f} % of {of}{runs} of {ran.text}"


def sources(ran: ComparedRun) -> str:
    """The command that lists the runs: `sources: busbw reference --system h200x8`."""
    nodes = f" --nodes {ran.hosts}" if ran.hosts > 1 else ""
    return f"sources: busbw reference --system {ran.job('float', 'sum').gpu}x{ran.per_host}{nodes}"


def _conclude(message: str, figure: Figure, compared: Compared) -> Conclusion:
    expected = compared.expected
    assert expected is not None
    within = f"{gb(expected.low)} to {gb(expected.high)} GB/s"
    named = ", ".join(compared.runs[:RUNS_NAMED])
    if len(compared.runs) > RUNS_NAMED:
        named += f" and {len(compared.runs) - RUNS_NAMED} more"
    evidence = (
        f"{named}; {100 * expected.coverage:.0f} % of such runs are expected within {within}; warns"
        " below"
    )
    reached = figure.reaches(expected.low)
    if reached is None:
        message += f", perhaps below the expected {within}: its interval is wide"
        return Conclusion(Verdict.UNKNOWN, message, evidence, MORE_TIME)
    if not reached:
        return Conclusion(Verdict.WARN, f"{message}, below the expected {within}", evidence, NCCL)
    if compared.busbw > expected.high:
        message += f", above the expected {within}"
        if compared.fastest is not None and compared.busbw > compared.fastest:
            message += (
                ": faster than all " + ("your own" if compared.own else "published") + " runs"
            )
    return Conclusion(Verdict.PASS, message, evidence)


def _size(figure: Figure) -> int:
    return figure.row.size_bytes
