"""The steps of an inference server as CSV: a line for each phase and kind of communication."""

from collections.abc import Iterator

from busbw.core.errors import UsageError
from busbw.core.pattern import Pattern
from busbw.core.serving import PhaseSteps, Quartiles, StepCalls
from busbw.pattern.csv import csv_text

_FIGURES = tuple(
    name for name, kind in PhaseSteps.__annotations__.items() if "Quartiles" in str(kind)
)
_CALLS = StepCalls.__struct_fields__


def table(pattern: Pattern) -> str:
    """The figures of a phase stand on each of its lines; one without communication has one line.

    UsageError if the pattern has no steps of a server.
    """
    if pattern.header.serving is None:
        raise UsageError(
            "--format steps-csv: no steps of an inference server in what was read",
            "give the trace of torch.profiler of a server whose steps have markers",
        )
    titles = ["phase", "steps"]
    for figure in _FIGURES:
        titles += [f"{figure}_{field}" for field in Quartiles.__struct_fields__]
    titles += [f"calls_{field}" for field in _CALLS]
    return csv_text([titles, *_lines(pattern.header.serving.phases)])


def _lines(phases: list[PhaseSteps]) -> Iterator[list[object]]:
    for phase in phases:
        start: list[object] = [phase.phase, phase.steps]
        for figure in _FIGURES:
            quartiles = getattr(phase, figure)
            start += [getattr(quartiles, field) for field in Quartiles.__struct_fields__]
        if not phase.calls:
            yield [*start, *[None] * len(_CALLS)]
        for calls in phase.calls:
            yield [*start, *(getattr(calls, field) for field in _CALLS)]
